"""Functions that the entry of a C file calls: pointers, failures, memory from the caller, and
arithmetic that reports an overflow. Used by c_program.py.
"""

from __future__ import annotations

AT = """static void *ingot_at(void *base, int64_t offset)
{
    return (unsigned char *)base + offset;
}
"""

FAIL = """static int32_t ingot_fail(struct ingot_error *error, int64_t launch, int64_t reason,
                          int64_t value, const char *where, const char *why)
{
    error->launch = launch;
    error->reason = reason;
    error->values[0] = value;
    error->where = where;
    error->why = why;
    return 1;
}
"""

# At least one byte, so that a pointer is never null.
RESERVE = """static bool ingot_reserve(struct ingot_call *call, struct ingot_block *block,
                          int64_t bytes)
{
    const int64_t need = bytes == 0 ? 1 : bytes;
    void *data;
    if (need > 0 && need <= block->capacity) return true;
    if (need < 0 || call->resize == NULL || (uint64_t)need > SIZE_MAX) return false;
    data = call->resize(block->data, (size_t)need);
    if (data == NULL) return false;
    block->data = data;
    block->capacity = need;
    return true;
}
"""

# Room for one more row; twice as much as before, so that n rows cost n copies.
GROW = """static bool ingot_grow(struct ingot_call *call, struct ingot_block *block, int64_t row)
{
    int64_t need;
    if (row != 0 && block->rows >= INT64_MAX / row) return false;
    need = (block->rows + 1) * row;
    if (need > block->capacity && block->capacity <= INT64_MAX / 2 && need < 2 * block->capacity)
        need = 2 * block->capacity;
    return ingot_reserve(call, block, need);
}
"""

_TESTS = {
    "+": ("add", "b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b"),
    "-": ("sub", "b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b"),
    "*": (
        "mul",
        "a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)\n"
        "              : a < 0 && (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a)",
    ),
}


def checked(symbol: str) -> tuple[str, str]:
    """Name and text of the function for `+`, `-` or `*` that sets a flag on overflow."""
    op, test = _TESTS[symbol]
    name = f"ingot_checked_{op}"
    text = f"""static int64_t {name}(int64_t a, int64_t b, bool *overflow)
{{
    const bool is_over = {test};
    *overflow = *overflow || is_over;
    return is_over ? 0 : a {symbol} b;
}}
"""
    return name, text
