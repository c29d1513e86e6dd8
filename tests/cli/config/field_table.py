"""Every field of every file, written down by hand: a good value, bad ones, and what is allowed in words.

It is made from docs/configuration.md, not from the models: a bound or a word that is wrong in both places is not copied.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldRow:
    """A field: values as YAML."""

    good: str
    allowed: str
    wrong: tuple[str, ...]
    """Of another type, or not among the words."""
    outside: tuple[str, ...] = ()
    """Of the right type and out of bounds."""


def _number(good: str, allowed: str, *outside: str) -> FieldRow:
    return FieldRow(good, allowed, ("'7'", "true", "[]", "{}", "null", "seven"), outside)


def _words(*words: str) -> FieldRow:
    return FieldRow(words[0], f"one of {', '.join(words)}", ("7", "true", "[]", "null", "other", f"{words[0]}x"))


def _text(good: str, allowed: str, *outside: str) -> FieldRow:
    return FieldRow(good, allowed, ("7", "true", "[]", "{}", "null", "2020-02-02"), outside)


def _constant(good: str, allowed: str = "") -> FieldRow:
    return FieldRow(good, allowed or good, ("7", "[]", "null"), (f"{good}x",))


def _path(good: str = "/a") -> FieldRow:
    return FieldRow(good, "a path", ("7", "true", "[]", "{}"))


def _section(*keys: str) -> FieldRow:
    return FieldRow("", f"a mapping with the keys {', '.join(keys)}", ("7", "true", "[]", "null", "text"))


def _list(good: str, entries: str, most: str = "") -> FieldRow:
    return FieldRow(good, f"a list{most}, each entry {entries}", ("7", "true", "{}", "text"))


KINDS = "Configuration"
"""Of a text that is no kind all four are allowed, of one that is nearly one that kind."""
SECONDS = "a number above 0, up to "
ADDRESS = "a text such as 127.0.0.1:12345"
RESOURCE = "a text such as aliyun.com/gpu-mem"
UNIT = _number("256", "a whole number from 1 to 1048576", "0", "-1", "1048577", "1.5", ".nan")
REQUIRED_PATH = FieldRow("/a", "a path", ("7", "true", "[]", "{}", "null"))
NAMESPACE = _text("vrampack-system", "a text such as vrampack-system", "A", "a_b", "-a", "a.b", "a" * 64)
SWITCH = FieldRow("true", "true or false", ("7", "'yes'", "[]", "null", "tru"))
POLICIES = ("binpack", "spread", "node-binpack", "sum-of-squares", "fragmentation", "tessellate")
WEIGHTS = "a mapping with the keys opening, leftover_share, pressure, starvation"

EXTENDER = {
    "apiVersion": _constant("vrampack.dev/v1"),
    "kind": _constant("ExtenderConfiguration", KINDS),
    "unit_mib": UNIT,
    "reserve_mib": _number("450", "a whole number from 0 to 1048576", "-1", "1048577", "0.5"),
    "resources": _section("memory", "count"),
    "resources.memory": _text("a.b/c", RESOURCE, "gpu-mem", "''", "/x", "a/b c"),
    "resources.count": _text("a.b/c", RESOURCE, "count", "A/b"),
    "listen": _section("verbs", "health", "url_prefix"),
    "listen.verbs": _text("'127.0.0.1:1'", ADDRESS),
    "listen.health": _text("'127.0.0.1:1'", ADDRESS),
    "listen.url_prefix": _text("/x", "a text such as /gpushare-scheduler"),
    "tls": _section("cert_file", "key_file", "client_ca_file"),
    "tls.cert_file": _path(),
    "tls.key_file": _path(),
    "tls.client_ca_file": _path(),
    "deadlines": _section("bind_seconds", "receive_seconds", "stale_seconds", "drain_seconds", "ready_after_seconds"),
    "deadlines.bind_seconds": _number("2.5", f"{SECONDS}60", "0", "-1", "60.5", ".inf", ".nan"),
    "deadlines.receive_seconds": _number("2", f"{SECONDS}120", "0", "121", ".inf"),
    "deadlines.stale_seconds": _number("2", f"{SECONDS}3600", "0", "3601", "-.inf"),
    "deadlines.drain_seconds": _number("0", "a number from 0 to 60", "-0.1", "61"),
    "deadlines.ready_after_seconds": _number("0", "a number from 0 to 60", "-0.1", "61"),
    "refused": _section("evict_after_seconds"),
    "refused.evict_after_seconds": FieldRow("2", f"{SECONDS}3600", ("'7'", "true", "[]", "{}"), ("0", "3601")),
    "policy": _section("default", "weights", "bounds", "allowed", "shadow"),
    "policy.default": FieldRow(
        "tessellate", f"one of {', '.join(POLICIES)}", ("7", "true", "[]", "null", "other", "tessellatex")),
    "policy.weights": FieldRow("{opening: 2}", WEIGHTS, ("7", "true", "[]", "null", "text")),
    "policy.weights.opening": _number("2", "a number from 0 to 100", "-1", "100.1", ".nan", ".inf"),
    "policy.weights.leftover_share": _number("0.5", "a number from 0 to 1", "-0.1", "1.1"),
    "policy.weights.pressure": _number("0", "a number from 0 to 100", "-1", "101"),
    "policy.weights.starvation": _number("2.5", "a number from 0 to 100", "-1", "101"),
    "policy.bounds": _section("card_use_percent"),
    "policy.bounds.card_use_percent": FieldRow(
        "85", "a whole number from 1 to 100", ("'7'", "true", "[]", "{}", "most"), ("0", "101", "85.5")
    ),
    "policy.allowed": _list("[spread]", f"one of {', '.join(POLICIES)}", f" of at most {len(POLICIES)}"),
    "policy.shadow": FieldRow(
        "{policy: spread}", "a mapping with the keys policy, weights, bounds", ("7", "true", "[]", "spread")
    ),
    "profiles": _list(
        "[{name: a, policy: spread}]",
        "a mapping with the keys name, policy, weights, bounds, users, schedulers, by_annotation",
        " of at most 64",
    ),
    "rules": _section("max_pods_per_card", "share_with", "reserve", "models", "whole_cards"),
    "rules.max_pods_per_card": FieldRow(
        "4", "a whole number from 1 to 1000", ("'7'", "true", "[]", "{}", "four"), ("0", "1001", "1.5")
    ),
    "rules.share_with": FieldRow(
        "same-label:team",
        "one of anybody, same-namespace, or a text such as same-label:team",
        ("7", "true", "[]", "null", "nobody", "same-label", "'same-label:'", "same-label:a b", "same-namespaces"),
    ),
    "rules.reserve": _list(
        "[{model: A, cards: 1}]", "a mapping with the keys model, cards, users, min_units", " of at most 64"
    ),
    "rules.models": _list("[{allow: [A]}]", "a mapping with the keys users, allow", " of at most 64"),
    "rules.whole_cards": FieldRow("paid", "one of paid, as-requested", ("7", "true", "[]", "free")),
    "decide": FieldRow(
        "filter", "prioritize, filter or auto", ("7", "true", "[]", "null")
    ),
    "decide.default": _words("prioritize", "filter", "auto"),
    "decide.schedulers": FieldRow(
        "{a: auto}", "a mapping, each value one of prioritize, filter, auto", ("7", "true", "[]", "text", "null")
    ),
    "holds": _section("schedulers", "max_seconds"),
    "holds.schedulers": _list("[a]", "a text", " of at most 64"),
    "holds.max_seconds": _number("2.5", "a number from 1 to 86400", "0", "0.5", "86401", ".inf"),
    "preemption": _section("by_card", "max_evictions_per_hour", "max_evictions_per_namespace_per_hour"),
    "preemption.by_card": _words("never", "plan", "act"),
    "preemption.max_evictions_per_hour": _number("20", "a whole number from 1 to 10000", "0", "10001", "1.5"),
    "preemption.max_evictions_per_namespace_per_hour": _number("10", "a whole number from 1 to 10000", "0", "10001", "1.5"),
    "autoscaling": _section("protect", "max_hours", "placeholders", "max_placeholders_per_hour"),
    "autoscaling.protect": _words("auto", "always", "never"),
    "autoscaling.max_hours": _number("12.5", "a number from 1 to 8760", "0", "0.5", "8761", ".inf"),
    "autoscaling.placeholders": _words("never", "karpenter", "cluster-autoscaler"),
    "autoscaling.max_placeholders_per_hour": _number("8", "a whole number from 1 to 1000", "0", "1001", "1.5"),
    "usage_leases": _section("namespace"),
    "usage_leases.namespace": NAMESPACE,
    "nvidia_fractions": SWITCH,
}  # fmt: skip

PLACEMENT = {
    "apiVersion": EXTENDER["apiVersion"],
    "kind": _constant("PlacementPolicy", "Policy"),
} | {path: row for path, row in EXTENDER.items() if path.partition(".")[0] in ("policy", "profiles", "rules")}

CAPABILITY = "one of compute, compat32, display, graphics, ngx, utility, video"
XID = "a whole number from 1 up"
AGENT = {
    "apiVersion": _constant("vrampack.dev/v1"),
    "kind": _constant("AgentConfiguration", KINDS),
    "mode": _words("kubernetes", "standalone"),
    "unit_mib": UNIT,
    "units_per_card": FieldRow(
        "{T4: 15}", "a mapping, each value a whole number from 1 to 1048576", ("7", "true", "[]", "text", "null")
    ),
    "injection": _words("auto", "cdi", "exact"),
    "cdi": _section("folder", "drm_nodes", "driver_capabilities", "hook", "nvidia_ctk", "driver_root"),
    "cdi.folder": REQUIRED_PATH,
    "cdi.drm_nodes": SWITCH,
    "cdi.driver_capabilities": _list("[compute]", CAPABILITY),
    "cdi.hook": _path(),
    "cdi.nvidia_ctk": REQUIRED_PATH,
    "cdi.driver_root": _text("/a", "a text that is not empty", "''"),
    "devices": _words("auto", "uuid", "cdi"),
    "read_as": _words("auto", "node", "account"),
    "enforcement": _words("auto", "native", "kmod", "preload", "watch", "none"),
    "resources": _section("memory"),
    "resources.memory": _text("a.b/c", RESOURCE, "gpu-mem", "a/"),
    "listen": _section("health", "status_socket"),
    "listen.health": _text("'127.0.0.1:1'", ADDRESS),
    "listen.status_socket": _text("/run/a.sock", "a text such as /run/vrampack/agent-status.sock"),
    "metrics": _section("address", "tls", "authorization"),
    "metrics.address": _text("'127.0.0.1:1'", ADDRESS),
    "metrics.tls": _section("cert_file", "key_file", "client_ca_file"),
    "metrics.tls.cert_file": _path(),
    "metrics.tls.key_file": _path(),
    "metrics.tls.client_ca_file": _path(),
    "metrics.authorization": _words("none", "token"),
    "cards": _section("include", "exclude"),
    "cards.include": _list("[]", "a text"),
    "cards.exclude": _list("[]", "a text"),
    "health": _section("check_seconds", "call_seconds", "recover_after_checks", "xids", "evict"),
    "health.check_seconds": _number("2", f"{SECONDS}600", "0", "601"),
    "health.call_seconds": _number("2", f"{SECONDS}120", "0", "120.1"),
    "health.recover_after_checks": _number("2", "a whole number from 1 to 1000", "0", "1001", "1.0"),
    "health.xids": _section("ignore", "fatal", "reset", "reboot", "human"),
    "health.xids.ignore": _list("[]", XID),
    "health.xids.fatal": _list("[]", XID),
    "health.xids.reset": _list("[]", XID),
    "health.xids.reboot": _list("[]", XID),
    "health.xids.human": _list("[]", XID),
    "health.evict": _section("pods", "per_minutes"),
    "health.evict.pods": _number("2", "a whole number from 0 to 32", "-1", "33", "1.0"),
    "health.evict.per_minutes": _number("2", f"{SECONDS}10080", "0", "10081"),
    "refused": _section("action", "after_seconds"),
    "refused.action": _words("evict", "keep"),
    "refused.after_seconds": _number("2", f"{SECONDS}3600", "0", "3601"),
    "runtime_classes": _section("allow", "refuse"),
    "runtime_classes.allow": FieldRow("[nvidia]", "a list, each entry a text", ("7", "true", "text", "{}")),
    "runtime_classes.refuse": _list("[]", "a text"),
    "watch": _section("slack_mib", "evict_after_seconds"),
    "watch.slack_mib": _number("2", "a whole number from 0 to 1048576", "-1", "1048577"),
    "watch.evict_after_seconds": FieldRow(
        "2", f"{SECONDS}86400", ("'7'", "true", "[]", "{}"), ("0", "86401")
    ),
    "kmod": _section("unknown", "unknown_cgroups"),
    "kmod.unknown": _words("pass", "deny"),
    "kmod.unknown_cgroups": _list("[]", "a text"),
    "usage_lease": _section("namespace", "interval_seconds"),
    "usage_lease.namespace": NAMESPACE,
    "usage_lease.interval_seconds": _number("90.5", "a number from 60 to 300", "59.9", "301", ".inf"),
    "standalone": _section("overcommit"),
    "standalone.overcommit": _words("refuse", "allow"),
    "kubelet_folder": REQUIRED_PATH,
}  # fmt: skip

WEBHOOK = {
    "apiVersion": _constant("vrampack.dev/v1"),
    "kind": _constant("AdmissionWebhookConfiguration", KINDS),
    "listen": _section("admission", "health"),
    "listen.admission": _text("'127.0.0.1:1'", ADDRESS),
    "listen.health": _text("'127.0.0.1:1'", ADDRESS),
    "tls": _section("cert_file", "key_file", "client_ca_file"),
    "tls.cert_file": _path(),
    "tls.key_file": _path(),
    "tls.client_ca_file": _path(),
    "resources": _section("memory"),
    "resources.memory": _text("a.b/c", RESOURCE, "gpu-mem"),
    "deadlines": _section("receive_seconds", "drain_seconds"),
    "deadlines.receive_seconds": _number("2", f"{SECONDS}120", "0", "121"),
    "deadlines.drain_seconds": _number("0", "a number from 0 to 60", "-1", "61"),
    "scheduler_name": _text("vrampack", "a text such as vrampack", "A", "a b"),
}
FILES = {"extender": EXTENDER, "policy": PLACEMENT, "agent": AGENT, "admission": WEBHOOK}
