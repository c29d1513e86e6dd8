"""The parts of `vrampack-records`: how each is taken away, and the attack that it stops."""

from __future__ import annotations

from tests.support.admission.attacks import (
    Attack,
    added_by,
    added_once_bound_by,
    bound_with,
    bound_with_label,
    changed_by,
    created_with,
    extender_writes_by,
    relabelled_by,
    removed_by,
)
from tests.support.admission.pods import (
    FROZEN_LABELS,
    GPUSHARE_V3,
)
from tests.support.admission.policies import (
    Edit,
    with_text,
    without_operation,
    without_resource,
    without_validation,
)

COUNT, PLACEMENT = FROZEN_LABELS

OF_RECORDS: dict[str, tuple[Edit, Attack]] = {
    "resource pods": (without_resource("pods"), changed_by("pods")),
    "resource pods, creation": (without_operation("CREATE", "pods"), created_with("vrampack.dev/allocation")),
    "resource pods, update": (without_operation("UPDATE", "pods"), added_by("pods")),
    "resource pods/status": (without_resource("pods/status"), changed_by("pods/status")),
    "resource pods/status, labels": (
        without_resource("pods/status"),
        relabelled_by("pods/status", COUNT, "2", was="1"),
    ),
    "resource pods/binding": (without_resource("pods/binding"), bound_with()),
    "resource pods/binding, labels": (without_resource("pods/binding"), bound_with_label(COUNT)),
    "resource bindings": (without_resource("bindings"), bound_with(legacy=True)),
    "resource bindings, labels": (without_resource("bindings"), bound_with_label(PLACEMENT, legacy=True)),
    "condition, labels of a Binding": (with_text("request.kind.kind == 'Binding' || (", "("), bound_with_label(COUNT)),
    "condition, creation": (
        with_text("? object.metadata.?annotations.hasValue()", "? false"),
        created_with("vrampack.dev/allocation"),
    ),
    "condition, annotations": (
        with_text("oldObject.metadata.?annotations != object.metadata.?annotations", "false"),
        changed_by("pods"),
    ),
    "condition, labels": (
        with_text("oldObject.metadata.?labels != object.metadata.?labels", "false"),
        relabelled_by("pods", COUNT, None, was="2"),
    ),
    "validation 0": (without_validation(0), removed_by("pods")),
    "validation 1": (without_validation(1), relabelled_by("pods", COUNT, None, was="2")),
    "removal unseen": (
        with_text("variables.before.filter(k, ", "variables.before.filter(k, k in variables.after && "),
        removed_by("pods/status"),
    ),
    "addition unseen": (with_text("!(k in variables.before)", "false"), added_by("pods/status")),
    "change unseen": (
        with_text("variables.before[?k] != variables.after[?k]", "!(k in variables.after)"),
        changed_by("pods"),
    ),
    "anybody's Binding": (
        with_text("variables.isBinding && request.userInfo.username == variables.extender", "variables.isBinding"),
        bound_with(),
    ),
    "the extender anywhere": (
        with_text("variables.isBinding && request.userInfo.username", "request.userInfo.username"),
        extender_writes_by("pods/status"),
    ),
    "allocation not named": (
        with_text("vrampack[.]dev/allocation$|", ""),
        created_with("vrampack.dev/allocation"),
    ),
    "visible-devices not named": (
        with_text("(visible-devices|limit-mib)", "limit-mib"),
        bound_with("visible-devices.vrampack.dev/main"),
    ),
    "limit-mib not named": (
        with_text("(visible-devices|limit-mib)", "visible-devices"),
        changed_by("pods", "limit-mib.vrampack.dev/main"),
    ),
    "gpushare v3 not named": (
        with_text("|gpushare[.]alibabacloud[.]com/gpumemory$", ""),
        added_once_bound_by("pods/status", GPUSHARE_V3),
    ),
    "gpushare v3 not named, Binding": (
        with_text("|gpushare[.]alibabacloud[.]com/gpumemory$", ""),
        bound_with(GPUSHARE_V3, legacy=True),
    ),
    "gpushare v2 not named": (
        with_text("|scheduler[.]framework[.]gpushare[.]", ""),
        removed_by("pods", "scheduler.framework.gpushare.allocation"),
    ),
    "ALIYUN_COM_GPU_MEM not named": (
        with_text("|ALIYUN_COM_GPU_MEM_", ""),
        added_by("pods/status", "ALIYUN_COM_GPU_MEM_IDX"),
    ),
    "count not frozen": (with_text(f"'{COUNT}', ", ""), relabelled_by("pods", COUNT, "2", was=None)),
    "placement not frozen": (
        with_text(f", '{PLACEMENT}'", ""),
        relabelled_by("pods", PLACEMENT, "require-whole-device", was=None),
    ),
}
