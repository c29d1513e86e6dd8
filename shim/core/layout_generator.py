"""Generates ioctls.h and layouts.h from layouts.csv and branches.csv: `python -m shim.core.layout_generator`. A test compares them."""

from __future__ import annotations

from shim.core.layout_facts import FOLDER, IOCTL_STRUCT, NUMBER_STRUCT, LayoutFact, read_branches, read_facts

IOCTLS_HEADER = """\
/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/* The calls that the core watches. Generated from layouts.csv by `python -m shim.core.layout_generator`: edit that. */
#ifndef IOCTLS_H
#define IOCTLS_H

/* _IOC_NR, the same in every branch. */
enum {
"""
LAYOUTS_HEADER = """\
/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0 */
/*
 * Where the driver keeps what, branch by branch. Generated from layouts.csv and branches.csv by
 * `python -m shim.core.layout_generator`: edit those. header_check.py compares them with NVIDIA's published headers.
 */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include "core.h"

/* The same in every branch. */
enum {
"""


def render_ioctls() -> str:
    """The text of ioctls.h."""
    return IOCTLS_HEADER + _render_constants(IOCTL_STRUCT) + "};\n\n#endif\n"


def render_layouts() -> str:
    """The text of layouts.h."""
    known = [branch.number for branch in read_branches()]
    fields = [fact for fact in read_facts() if fact.struct not in (IOCTL_STRUCT, NUMBER_STRUCT)]
    names = list(dict.fromkeys(fact.name for fact in fields))
    values = {name: {branch: _find_value(fields, name, branch) for branch in known} for name in names}
    shared = [name for name in names if len(set(values[name].values())) == 1]
    return (
        LAYOUTS_HEADER
        + _render_constants(NUMBER_STRUCT)
        + "".join(
            f"\t{name.upper()}_MOST = {max(values[name].values())},\n" for name in names if name.endswith("_bytes")
        )
        + "};\n\n/* Offsets, and `bytes`: a size. 0 also where a branch has no such field; none of those is at the start. */\n"
        + "struct core_layout {\n\tuint16_t branch;\n"
        + "".join(f"\tuint16_t {name};\n" for name in names)
        + "};\n\n#define LAYOUTS_SHARED \\\n"
        + ", \\\n".join(f"\t.{name} = {values[name][known[0]]}" for name in shared)
        + "\n\n#define LAYOUTS(X) \\\n"
        + " \\\n".join(
            f"\tX({branch}, {', '.join(f'.{name} = {values[name][branch]}' for name in names if name not in shared)})"
            for branch in known
        )
        + "\n\n/* NULL when no headers of that version's branch are published. */\n"
        + "const struct core_layout *layouts_find(const char *driver_version);\n\n#endif\n"
    )


def _render_constants(struct: str) -> str:
    return "".join(f"\t{fact.field} = {fact.value:#x},\n" for fact in read_facts() if fact.struct == struct)


def _find_value(fields: list[LayoutFact], name: str, branch: int) -> int:
    found = [fact.value for fact in fields if fact.name == name and fact.is_valid_in(branch)]
    if len(found) > 1:
        raise SystemExit(f"{name} has {len(found)} values in branch {branch}")
    return found[0] if found else 0


if __name__ == "__main__":
    (FOLDER / "ioctls.h").write_text(render_ioctls())
    (FOLDER / "layouts.h").write_text(render_layouts())
