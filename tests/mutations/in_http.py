"""Breaks of the HTTP listeners: who is let in, what is read, how our own faults are reported, and which rights apply."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

SETTINGS = "tests/extender/test_settings.py"
ROUTES = "tests/extender/test_routes.py"
DOOR = "tests/extender/test_timed_verbs.py"
RELOAD = "tests/extender/test_config_reloader.py"
ROLES = "tests/manifests/test_roles.py"

DOORS: Mapping[str, Mutation] = {
    "an address that everybody reaches needs no certificates": Mutation(
        "extender/settings.py",
        "if not is_loopback(self.listen.verbs) and self.tls.cert_file is None:",
        "if False:",
        f"{SETTINGS}::test_a_flag_cannot_set_a_non_loopback_address_without_tls",
    ),
    "half of mutual TLS will do": Mutation(
        "extender/settings.py",
        "if any(given) and not all(given):",
        "if False:",
        f"{SETTINGS}::test_a_fault_names_file_and_path",
    ),
    "a setting with a misspelt name is ignored": Mutation(
        "vrampack/config/strict.py",
        'model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)',
        'model_config = ConfigDict(frozen=True, extra="ignore", strict=True, use_attribute_docstrings=True)',
        f"{SETTINGS}::test_a_fault_names_file_and_path",
    ),
    "a client without a certificate is served": Mutation(
        "vrampack/http/tls_context.py",
        "context.verify_mode = ssl.CERT_REQUIRED",
        "context.verify_mode = ssl.CERT_OPTIONAL",
        "tests/extender/test_server_tls.py::test_clients_of_other_authorities_fail_the_handshake",
    ),
    "a client outlives its authority by a session": Mutation(
        "vrampack/http/tls_context.py",
        "context.num_tickets = 0",
        "context.num_tickets = 2",
        "tests/extender/test_server_tls.py::test_no_session_is_resumed",
    ),
    "the first connections keep a probe out": Mutation(
        "vrampack/http/open_connections.py",
        "oldest = next(each for each in crowd if not each.is_answering)",
        "oldest = next(each for each in reversed(crowd) if not each.is_answering)",
        "tests/extender/test_open_connections.py::test_the_longest_idle_connection_is_closed_first",
    ),
    "a container chooses any capability of the driver": Mutation(
        "vrampack/cards/env_injection.py",
        "return last if isinstance(last, str) and ALLOWED_CAPABILITIES.fullmatch(last) else DEFAULT_CAPABILITIES",
        "return last if isinstance(last, str) else DEFAULT_CAPABILITIES",
        "tests/extender/test_admission_webhook_table.py::test_no_hostile_environment_gets_through"
        "[NVIDIA_DRIVER_CAPABILITIES of the container]",
    ),
    "a pod of any number of containers is answered": Mutation(
        "extender/http/admission_webhook.py",
        "if len(containers) > MAX_CONTAINERS:",
        "if False:",
        "tests/extender/test_admission_webhook.py::test_a_pod_of_too_many_containers_is_refused_with_field_and_fix",
    ),
    "a body of countless values is decoded": Mutation(
        "extender/http/admission_webhook.py",
        "if _count_values(body) > MAX_JSON_VALUES:",
        "if False:",
        "tests/extender/test_admission_webhook.py::test_a_body_of_countless_values_is_refused_before_they_are_decoded",
    ),
    "a name may lead to another path of the API": Mutation(
        "extender/wire/codec.py",
        'if name != "pod_uid" and not _NAME.fullmatch(value):',
        "if False:",
        "tests/extender/test_wire.py::test_a_name_that_would_change_a_path_is_refused",
    ),
    "a fault in bind is a success": Mutation(
        "extender/http/timed_verbs.py",
        'return VerbResponse(encode_json(BindingResult(f"bind outcome unknown: {text}")), "error")',
        'return VerbResponse(encode_json(BindingResult("")), "error")',
        f"{DOOR}::test_a_fault_is_answered_in_the_form_of_its_verb[bind]",
    ),
    "a bind is done before the lists are complete": Mutation(
        "extender/scheduling/verbs.py",
        'return _bind_error(f"not ready: {problem}; nothing was bound")',
        "pass",
        f"{ROUTES}::test_verbs_report_that_the_lists_are_incomplete",
    ),
    "a body of any size is read": Mutation(
        "extender/http/protocol.py",
        "if self._size > MAX_BODY_BYTES:",
        "if False:",
        "tests/extender/test_protocol.py::test_a_body_that_grows_too_large_is_refused_and_the_connection_closed",
    ),
    "half-sent bodies fill the memory": Mutation(
        "extender/http/body_budget.py",
        "while self._total > self._max_bytes and self._arriving:",
        "while False:",
        "tests/extender/test_body_budget.py::test_the_body_arriving_for_the_longest_time_is_refused_to_make_room",
    ),
    "a caller that takes no answer is read all the same": Mutation(
        "extender/http/uvicorn_protocol.py",
        "if self.read_paused and not self.write_paused and not self._protocol.pipeline:",
        "if self.read_paused:",
        "tests/extender/test_back_pressure.py::test_a_caller_that_reads_no_answers_is_not_read_any_further",
    ),
    "the extender may read all that can be claimed": Mutation(
        "manifests/rendered/kubeadm.yaml",
        "resources: [deviceclasses]",
        'resources: ["*"]',
        f"{ROLES}::test_roles_grant_the_allowed_list_and_nothing_else[kubeadm]",
    ),
    "our scheduler may do anything": Mutation(
        "manifests/rendered/second-scheduler.yaml",
        "name: system:kube-scheduler",
        "name: cluster-admin",
        f"{ROLES}::test_accounts_are_bound_to_the_listed_roles_and_no_other[second-scheduler]",
    ),
}
