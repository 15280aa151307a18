// Rows out of a buffer of a compiled JAX program: of `width` numbers as they are, or in the caller's own memory: its
// address, whether it holds double precision, how many values a row has there, and how numbers are made of them.
#pragma once

#include "call.h"
#include "xla/ffi/api/ffi.h"

// False where the buffer has neither.
inline bool read_rows(const xla::ffi::AnyBuffer& rows, int32_t kind, int32_t width, Call& call) {
  const auto type = rows.element_type();
  const bool borrowed = type == xla::ffi::U64, wide = type == xla::ffi::F64;
  const auto* address = static_cast<const uint64_t*>(rows.untyped_data());
  call.rows = borrowed ? reinterpret_cast<const void*>(address[0]) : rows.untyped_data();
  call.wide_rows = borrowed ? int32_t(address[1]) : wide;
  call.terms = borrowed && rows.element_count() > 3 ? address + 3 : nullptr;
  call.columns = call.terms ? int32_t(address[2]) : width;
  call.width = width, call.kind = kind;
  return borrowed || wide || type == xla::ffi::F32;
}
