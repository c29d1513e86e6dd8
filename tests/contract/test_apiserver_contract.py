"""The contract: two lists of calls, and every refusal, as the real API server answers them.

What `vrampack/kube/` calls, top to bottom: lists, watches, creation, patches, deletion, the Binding, events, and what is not
there. Then what people with kubectl need: discovery, tables, selectors, patches with directives, dry runs,
StatefulSets and Deployments, and the pods that controllers make of them.
Messages are checked by a piece that a person would look for; `code`, `reason` and `details` exactly.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from tests.contract.server import (
    MERGE,
    STRATEGIC,
    TABLE,
    ContractServer,
    Json,
    Workload,
    assert_refused,
    binding,
    describe_events,
    eviction,
    names,
    pod,
    without_managed_fields,
    workload,
)

NOT_FOUND = "the server could not find the requested resource"


# A list is one state of the cluster, however many pages it takes.


async def test_an_empty_list_has_a_version(server: ContractServer) -> None:
    answer = await server.call_ok("GET", server.pods)

    assert (answer["kind"], answer["apiVersion"], answer["items"]) == ("PodList", "v1", [])
    assert int(answer["metadata"]["resourceVersion"]) > 0
    assert "continue" not in answer["metadata"]


async def test_items_carry_no_kind_and_are_sorted_by_name(server: ContractServer) -> None:
    for name in ("b", "a-b", "a"):
        await server.a_pod(name)

    answer = await server.call_ok("GET", server.pods)

    assert names(answer) == ["a", "a-b", "b"]
    assert not [item for item in answer["items"] if "kind" in item or "apiVersion" in item]


async def test_nodes_are_listed_without_a_namespace(server: ContractServer) -> None:
    made = await server.a_node()

    answer = await server.call_ok("GET", "/api/v1/nodes")

    assert answer["kind"] == "NodeList"
    listed = {item["metadata"]["name"]: item for item in answer["items"]}
    assert "namespace" not in listed[made["metadata"]["name"]]["metadata"]


async def test_a_list_of_all_namespaces_holds_those_of_each(server: ContractServer) -> None:
    await server.a_pod("mine")
    await server.call_ok("POST", "/api/v1/namespaces/kube-system/pods", pod(server.namespace))

    answer = await server.call_ok("GET", "/api/v1/pods")
    await server.call_ok("DELETE", f"/api/v1/namespaces/kube-system/pods/{server.namespace}")

    places = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in answer["items"]}
    assert {(server.namespace, "mine"), ("kube-system", server.namespace)} <= places
    assert names(await server.call_ok("GET", server.pods)) == ["mine"]


async def test_pages_show_one_state_despite_concurrent_changes(server: ContractServer) -> None:
    made = {name: await server.a_pod(name) for name in ("a", "b", "c", "d", "e", "f", "g")}
    first = await server.call_ok("GET", server.pods, limit=3)

    await server.delete_object(made["d"])
    await server.annotate(made["e"], changed="yes")
    await server.a_pod("c-new")
    second = await server.call_ok("GET", server.pods, limit=3, continue_=first["metadata"]["continue"])
    third = await server.call_ok("GET", server.pods, limit=3, continue_=second["metadata"]["continue"])

    pages = [names(page) for page in (first, second, third)]
    assert pages == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert "annotations" not in second["items"][1]["metadata"]
    # 7 - 3 = 4 and 4 - 3 = 1 are left after a page; the last one has no such field
    assert [page["metadata"].get("remainingItemCount") for page in (first, second, third)] == [4, 1, None]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert "continue" not in third["metadata"]


async def test_a_last_page_that_is_full_has_no_continuation(server: ContractServer) -> None:
    for name in ("a", "b", "c", "d"):
        await server.a_pod(name)

    first = await server.call_ok("GET", server.pods, limit=2)
    second = await server.call_ok("GET", server.pods, limit=2, continue_=first["metadata"]["continue"])

    assert names(second) == ["c", "d"]
    assert "continue" not in second["metadata"]


async def test_resource_version_zero_returns_the_whole_list(server: ContractServer) -> None:
    """With resourceVersion=0 the real server answers from its cache and does not cut pages."""
    for name in ("a", "b", "c"):
        await server.a_pod(name)
    await server.call_ok("GET", server.pods)  # has the real server's cache catch up

    answer = await server.call_ok("GET", server.pods, limit=2, resourceVersion=0)

    assert names(answer) == ["a", "b", "c"]
    assert "continue" not in answer["metadata"]


async def test_a_continuation_of_a_forgotten_state_is_expired(server: ContractServer) -> None:
    for name in ("a", "b"):
        await server.a_pod(name)
    page = await server.call_ok("GET", server.pods, limit=1)
    await server.a_node()  # compaction keeps the newest state: the page's must not be that one

    await server.forget()

    answer = await server.call("GET", server.pods, limit=1, continue_=page["metadata"]["continue"])
    assert_refused(answer, 410, "Expired", "continue parameter is too old")


LIST_REFUSALS: dict[str, tuple[dict[str, Json], int, str, str]] = {
    "a continuation that is none": ({"continue_": "rubbish"}, 400, "BadRequest", "continue key is not valid"),
    "a limit that is no number": ({"limit": "many"}, 400, "BadRequest", 'parsing "many": invalid syntax'),
    "a version that is no number": ({"resourceVersion": "new"}, 400, "BadRequest", "invalid resource version"),
    "a version yet to come": ({"resourceVersion": 10**9}, 504, "Timeout", "Too large resource version: 1000000000"),
}


@pytest.mark.parametrize(("query", "code", "reason", "text"), LIST_REFUSALS.values(), ids=LIST_REFUSALS)
async def test_list_with_an_invalid_query_is_refused(
    server: ContractServer, query: dict[str, Json], code: int, reason: str, text: str
) -> None:
    assert_refused(await server.call("GET", server.pods, **query), code, reason, text)


async def test_continuation_with_a_resource_version_is_refused(server: ContractServer) -> None:
    for name in ("a", "b"):
        await server.a_pod(name)
    page = await server.call_ok("GET", server.pods, limit=1)

    answer = await server.call("GET", server.pods, continue_=page["metadata"]["continue"], resourceVersion=1)

    assert_refused(answer, 400, "BadRequest", "not allowed when using continue")


# A watch reports every change after its version, once, in order.


async def test_a_watch_reports_every_change_in_order(server: ContractServer) -> None:
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start) as watch:
        made = await server.a_pod("a")
        await server.annotate(made, n="1")
        await server.a_pod("b")
        await server.delete_object(made)
        events = await watch.read_lines(5)

    # a pod's deletion is two steps: it is marked, then it is gone
    assert describe_events(events) == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted({*versions})
    assert versions[0] > int(start)
    assert {(event["object"]["kind"], event["object"]["apiVersion"]) for event in events} == {("Pod", "v1")}


async def test_a_watch_from_a_list_loses_and_repeats_nothing(server: ContractServer) -> None:
    await server.a_pod("listed")
    page = await server.call_ok("GET", server.pods, limit=1)
    await asyncio.gather(*(server.a_pod(f"p-{number}") for number in range(6)))

    async with server.watch(server.pods, resourceVersion=page["metadata"]["resourceVersion"]) as watch:
        first = await watch.read_lines(3)
    async with server.watch(
        server.pods, resourceVersion=first[-1]["object"]["metadata"]["resourceVersion"], timeoutSeconds=1
    ) as watch:
        others = await watch.read_rest()

    assert names(page) == ["listed"]
    assert sorted(describe_events(first + others)) == [("ADDED", f"p-{number}") for number in range(6)]


async def test_a_watch_of_a_namespace_reports_no_other(server: ContractServer) -> None:
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start) as watch:
        await server.call_ok("POST", "/api/v1/namespaces/kube-system/pods", pod(server.namespace))
        await server.call_ok("DELETE", f"/api/v1/namespaces/kube-system/pods/{server.namespace}")
        await server.a_pod("mine")
        event = await watch.read_line()

    assert describe_events([event]) == [("ADDED", "mine")]


async def test_a_watch_of_nodes_reports_creation_change_and_deletion(server: ContractServer) -> None:
    start = (await server.call_ok("GET", "/api/v1/nodes"))["metadata"]["resourceVersion"]

    async with server.watch("/api/v1/nodes", resourceVersion=start) as watch:
        node = await server.a_node()
        await server.annotate(node, cards="2")
        await server.call_ok("DELETE", server.path(node))
        events = await watch.read_lines(3)

    name = node["metadata"]["name"]
    assert describe_events(events) == [("ADDED", name), ("MODIFIED", name), ("DELETED", name)]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": 0}], ids=["no version", "version 0"])
async def test_watch_without_a_version_begins_with_existing_objects(
    server: ContractServer, query: dict[str, Json]
) -> None:
    for name in ("b", "a"):
        await server.a_pod(name)
    await server.call_ok("GET", server.pods)  # has the real server's cache catch up

    async with server.watch(server.pods, **query) as watch:
        present = await watch.read_lines(2)
        await server.a_pod("c")
        later = await watch.read_line()

    assert sorted(describe_events(present)) == [("ADDED", "a"), ("ADDED", "b")]
    assert describe_events([later]) == [("ADDED", "c")]


async def test_watch_ends_by_itself_after_its_timeout(server: ContractServer) -> None:
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start, timeoutSeconds=1) as watch:
        assert await watch.read_rest() == []


async def test_bookmark_names_the_version_to_resume_from(server: ContractServer) -> None:
    """The last one comes two seconds before the end of the watch."""
    start = await server.version()

    query: dict[str, Json] = {"resourceVersion": start, "timeoutSeconds": 4, "allowWatchBookmarks": "true"}
    async with server.watch(server.pods, **query) as watch:
        made = await server.a_pod("a")
        event, *bookmarks = await watch.read_rest()

    assert describe_events([event]) == [("ADDED", "a")]
    assert {bookmark["type"] for bookmark in bookmarks} == {"BOOKMARK"}
    last = bookmarks[-1]["object"]
    assert (last["kind"], last["apiVersion"]) == ("Pod", "v1")
    assert int(last["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert "name" not in last["metadata"]
    async with server.watch(server.pods, resourceVersion=last["metadata"]["resourceVersion"]) as watch:
        await server.a_pod("b")
        assert describe_events([await watch.read_line()]) == [("ADDED", "b")]


async def test_bookmarks_are_sent_only_on_request(server: ContractServer) -> None:
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start, timeoutSeconds=3) as watch:
        await server.a_pod("a")
        events = await watch.read_rest()

    assert describe_events(events) == [("ADDED", "a")]


async def test_a_watch_from_a_forgotten_version_is_expired(server: ContractServer) -> None:
    """It is an event in a successful answer, not a status of the call: a client that looks at statuses alone misses it."""
    start = await server.version()
    await server.a_pod("a")

    await server.forget()

    async with server.watch(server.pods, resourceVersion=start) as watch:
        events = await watch.read_rest()
    assert [event["type"] for event in events] == ["ERROR"]
    assert_refused((410, events[0]["object"]), 410, "Expired", "too old resource version")


async def test_watch_from_the_newest_version_continues_after_compaction(server: ContractServer) -> None:
    await server.a_pod("a")
    await server.forget()
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start) as watch:
        await server.a_pod("b")
        assert describe_events([await watch.read_line()]) == [("ADDED", "b")]


# Creation: what the server sets, what it drops, what it refuses.


async def test_new_pod_is_pending_whatever_status_was_posted(server: ContractServer) -> None:
    body = pod("a", uid="made-up", labels={"app": "x"}) | {"status": {"phase": "Running"}}

    status, made = await server.call("POST", server.pods, body)

    assert status == 201
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    metadata = made["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["labels"]) == ("a", server.namespace, {"app": "x"})
    assert (metadata["generation"], len(metadata["uid"])) == (1, 36)
    assert {"resourceVersion", "creationTimestamp"} <= metadata.keys()
    assert made["status"]["phase"] == "Pending"
    assert made == await server.call_ok("GET", f"{server.pods}/a")


async def test_a_new_pod_gets_the_defaults_that_schedulers_read(server: ContractServer) -> None:
    made = await server.a_pod()

    spec = made["spec"]
    assert (spec["schedulerName"], spec["restartPolicy"]) == ("default-scheduler", "Always")
    assert (spec["terminationGracePeriodSeconds"], spec["priority"]) == (30, 0)
    # posted as the number 4, and as a limit only
    assert spec["containers"][0]["resources"] == {
        "limits": {"aliyun.com/gpu-mem": "4"},
        "requests": {"aliyun.com/gpu-mem": "4"},
    }


async def test_generate_name_lets_the_server_choose_the_name(server: ContractServer) -> None:
    body = pod("", generateName="made-")
    del body["metadata"]["name"]

    made = [await server.call_ok("POST", server.pods, body) for _ in range(2)]

    assert {item["metadata"]["generateName"] for item in made} == {"made-"}
    assert len({item["metadata"]["name"] for item in made}) == 2
    assert all(item["metadata"]["name"].removeprefix("made-").isalnum() for item in made)


async def test_a_new_node_keeps_the_status_it_comes_with(server: ContractServer) -> None:
    made = await server.a_node(capacity={"aliyun.com/gpu-mem": 15, "cpu": "8"})

    assert "namespace" not in made["metadata"]
    assert made["status"]["capacity"] == {"aliyun.com/gpu-mem": "15", "cpu": "8"}
    assert made["status"]["allocatable"] == made["status"]["capacity"]


def _empty() -> Json:
    return pod("new") | {"spec": {"containers": []}}


CREATE_REFUSALS: dict[str, tuple[Json, int, str | None, str]] = {
    "a name that is taken": (pod("taken"), 409, "AlreadyExists", 'pods "taken" already exists'),
    "no name": (pod(""), 422, "Invalid", "name or generateName is required"),
    "a name in upper case": (pod("New"), 422, "Invalid", 'metadata.name: Invalid value: "New"'),
    "no container": (_empty(), 422, "Invalid", "spec.containers: Required value"),
    "another kind": (pod("new") | {"kind": "Node"}, 400, "BadRequest", "cannot be handled as a Pod"),
    "another namespace": (pod("new", namespace="other"), 400, "BadRequest", "does not match the namespace"),
    "a version": (pod("new", resourceVersion="7"), 500, None, "should not be set on objects to be created"),
    "an annotation that is no string": (pod("new", annotations={"a": 5}), 400, "BadRequest", "cannot be handled as a"),
    "what is no JSON": (b"{", 400, "BadRequest", ""),
}


@pytest.mark.parametrize(("body", "code", "reason", "text"), CREATE_REFUSALS.values(), ids=CREATE_REFUSALS)
async def test_invalid_creation_is_refused(
    server: ContractServer, body: Json, code: int, reason: str | None, text: str
) -> None:
    await server.a_pod("taken")

    assert_refused(await server.call("POST", server.pods, body), code, reason, text)

    assert names(await server.call_ok("GET", server.pods)) == ["taken"]


async def test_a_refusal_names_its_object(server: ContractServer) -> None:
    await server.a_pod("taken")

    missing = await server.call("GET", f"{server.pods}/nobody")
    taken = await server.call("POST", server.pods, pod("taken"))
    empty = await server.call("POST", server.pods, _empty())

    assert_refused(missing, 404, "NotFound", 'pods "nobody" not found', details={"name": "nobody", "kind": "pods"})
    assert_refused(taken, 409, "AlreadyExists", "", details={"name": "taken", "kind": "pods"})
    cause = {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}
    assert_refused(empty, 422, "Invalid", "", details={"name": "new", "kind": "Pod", "causes": [cause]})


# Patches: of the object, and of its status.


@pytest.mark.parametrize("form", [MERGE, STRATEGIC], ids=["merge", "strategic"])
async def test_a_patch_sets_and_removes_annotations_and_labels(server: ContractServer, form: str) -> None:
    made = await server.a_pod("a", annotations={"keep": "1", "drop": "1"}, labels={"drop": "1"})
    patch = {"metadata": {"annotations": {"drop": None, "new": "2"}, "labels": {"drop": None}}}

    status, patched = await server.call("PATCH", server.path(made), patch, content_type=form)

    assert status == 200
    assert patched["metadata"]["annotations"] == {"keep": "1", "new": "2"}
    assert "labels" not in patched["metadata"]
    assert int(patched["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert patched["spec"] == made["spec"]


async def test_a_patch_that_changes_nothing_makes_no_version(server: ContractServer) -> None:
    made = await server.a_pod("a", annotations={"x": "1"})

    patched = await server.annotate(made, x="1")

    assert without_managed_fields(patched) == without_managed_fields(made)


async def test_status_patch_changes_status_and_metadata_but_not_the_spec(server: ContractServer) -> None:
    made = await server.a_pod("a")
    both = {"status": {"phase": "Running"}, "spec": {"nodeName": "nowhere"}, "metadata": {"annotations": {"x": "1"}}}

    patched = await server.call_ok("PATCH", f"{server.path(made)}/status", both, content_type=MERGE)

    assert patched["status"]["phase"] == "Running"
    assert patched["metadata"]["annotations"] == {"x": "1"}  # the way a pending pod is woken
    assert patched["spec"] == made["spec"]


async def test_the_status_of_a_pod_of_another_uid_is_not_patched(server: ContractServer) -> None:
    """A merge patch can name the uid that it means: a kick never reaches the namesake of a pod that is gone."""
    made = await server.a_pod("a")
    path = f"{server.path(made)}/status"
    kick = {"metadata": {"uid": "other", "annotations": {"x": "1"}}}

    answer = await server.call("PATCH", path, kick, content_type=MERGE)
    assert_refused(answer, 422, "Invalid", "metadata.uid: Invalid value")
    kick["metadata"]["uid"] = made["metadata"]["uid"]
    patched = await server.call_ok("PATCH", path, kick, content_type=MERGE)

    assert patched["metadata"]["annotations"] == {"x": "1"}


async def test_a_patch_of_the_object_leaves_its_status_alone(server: ContractServer) -> None:
    node = await server.a_node(capacity={"cpu": "8"})
    patch = {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "9"}}}

    patched = await server.call_ok("PATCH", server.path(node), patch, content_type=MERGE)

    assert patched["spec"]["unschedulable"] is True
    assert patched["status"]["capacity"] == {"cpu": "8"}


async def test_status_patch_of_a_node_does_not_change_its_spec(server: ContractServer) -> None:
    node = await server.a_node(capacity={"cpu": "8"})
    patch = {"spec": {"unschedulable": True}, "status": {"capacity": {"aliyun.com/gpu-mem": "15"}}}

    patched = await server.call_ok("PATCH", f"{server.path(node)}/status", patch, content_type=STRATEGIC)

    assert patched["status"]["capacity"] == {"cpu": "8", "aliyun.com/gpu-mem": "15"}
    assert "unschedulable" not in patched["spec"]


async def test_strategic_patch_merges_conditions_by_type(server: ContractServer) -> None:
    path = f"{server.path(await server.a_pod('a'))}/status"
    first = {"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}}
    second = {"status": {"conditions": [{"type": "C", "status": "True"}, {"type": "A", "status": "False"}]}}

    await server.call_ok("PATCH", path, first, content_type=STRATEGIC)
    joined = await server.call_ok("PATCH", path, second, content_type=STRATEGIC)
    replaced = await server.call_ok("PATCH", path, first, content_type=MERGE)

    def conditions(item: Json) -> list[tuple[str, str]]:
        return [(condition["type"], condition["status"]) for condition in item["status"]["conditions"]]

    assert conditions(joined) == [("C", "True"), ("A", "False"), ("B", "True")]
    assert conditions(replaced) == [("A", "True"), ("B", "True")]


PATCH_REFUSALS: dict[str, tuple[Json, str, int, str, str]] = {
    "an old version": (
        {"metadata": {"resourceVersion": "1", "annotations": {"x": "1"}}},
        MERGE,
        409,
        "Conflict",
        "the object has been modified",
    ),
    "another uid": ({"metadata": {"uid": "other"}}, MERGE, 422, "Invalid", "metadata.uid: Invalid value"),
    "another name": ({"metadata": {"name": "b"}}, MERGE, 400, "BadRequest", "does not match the name on the URL"),
    "another namespace": ({"metadata": {"namespace": "b"}}, MERGE, 400, "BadRequest", "does not match the namespace"),
    "a node": ({"spec": {"nodeName": "b"}}, MERGE, 422, "Invalid", "pod updates may not change fields other than"),
    "an annotation that is no string": ({"metadata": {"annotations": {"x": 5}}}, MERGE, 422, "Invalid", ""),
    "a list": ([], MERGE, 400, "BadRequest", ""),
    "an unknown form": ({}, "application/json", 415, "UnsupportedMediaType", "415: Unsupported Media Type"),
}


@pytest.mark.parametrize(("patch", "form", "code", "reason", "text"), PATCH_REFUSALS.values(), ids=PATCH_REFUSALS)
async def test_invalid_patch_is_refused(
    server: ContractServer, patch: Json, form: str, code: int, reason: str, text: str
) -> None:
    made = await server.a_pod("a")

    assert_refused(await server.call("PATCH", server.path(made), patch, content_type=form), code, reason, text)

    assert await server.call_ok("GET", server.path(made)) == made


@pytest.mark.parametrize("half", ["", "/status"])
async def test_a_missing_object_is_not_patched(server: ContractServer, half: str) -> None:
    answer = await server.call("PATCH", f"{server.pods}/nobody{half}", {}, content_type=MERGE)

    assert_refused(answer, 404, "NotFound", 'pods "nobody" not found', details={"name": "nobody", "kind": "pods"})


# Deletion: at once where nothing runs, a promise where something may.


async def test_an_unbound_pod_is_gone_at_once(server: ContractServer) -> None:
    made = await server.a_pod("a")

    status, answer = await server.call("DELETE", server.path(made))

    assert (status, answer["kind"], answer["metadata"]["uid"]) == (200, "Pod", made["metadata"]["uid"])
    assert_refused(await server.call("GET", server.path(made)), 404, "NotFound", 'pods "a" not found')
    assert_refused(await server.call("DELETE", server.path(made)), 404, "NotFound", 'pods "a" not found')


async def test_bound_pod_stays_until_it_is_deleted_without_grace(server: ContractServer) -> None:
    made = await server.a_bound_pod("a")
    start = await server.version()

    leaving = await server.call_ok("DELETE", server.path(made))
    again = await server.call_ok("DELETE", server.path(made))
    await server.call_ok("DELETE", server.path(made), {"gracePeriodSeconds": 0})
    async with server.watch(server.pods, resourceVersion=start) as watch:
        events = await watch.read_lines(3)

    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    assert leaving["metadata"]["deletionTimestamp"] > made["metadata"]["creationTimestamp"]
    assert leaving["spec"]["nodeName"] == "nowhere"
    assert again["metadata"]["resourceVersion"] == leaving["metadata"]["resourceVersion"]
    assert describe_events(events) == [("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    graces = [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events]
    assert graces == [30, 0, 0]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_is_gone_at_once(server: ContractServer, phase: str) -> None:
    made = await server.a_bound_pod("a")
    await server.call_ok("PATCH", f"{server.path(made)}/status", {"status": {"phase": phase}}, content_type=MERGE)

    await server.call_ok("DELETE", server.path(made))

    assert_refused(await server.call("GET", server.path(made)), 404, "NotFound", 'pods "a" not found')


async def test_a_finalizer_holds_a_pod_until_it_is_taken_away(server: ContractServer) -> None:
    made = await server.a_pod("a", finalizers=["example.com/hold"])
    start = await server.version()

    await server.call_ok("DELETE", server.path(made))
    held = await server.call_ok("GET", server.path(made))
    await server.call_ok("PATCH", server.path(made), {"metadata": {"finalizers": None}}, content_type=MERGE)
    async with server.watch(server.pods, resourceVersion=start) as watch:
        events = await watch.read_lines(2)

    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert describe_events(events) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert_refused(await server.call("GET", server.path(made)), 404, "NotFound", 'pods "a" not found')


async def test_a_node_is_deleted_in_one_step_and_its_pods_stay(server: ContractServer) -> None:
    node = await server.a_node()
    name = node["metadata"]["name"]
    bound = await server.a_bound_pod("a", node=name)

    status, answer = await server.call("DELETE", server.path(node))

    assert (status, answer["kind"], answer["status"]) == (200, "Status", "Success")
    assert answer["details"] == {"name": name, "kind": "nodes", "uid": node["metadata"]["uid"]}
    assert_refused(await server.call("GET", server.path(node)), 404, "NotFound", f'nodes "{name}" not found')
    assert (await server.call_ok("GET", server.path(bound)))["spec"]["nodeName"] == name


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_deletion_checks_its_preconditions(server: ContractServer, field: str) -> None:
    made = await server.a_pod("a")

    answer = await server.call("DELETE", server.path(made), {"preconditions": {field: "1"}})
    assert_refused(answer, 409, "Conflict", "in the precondition (1)", details={"name": "a", "kind": "Pod"})

    await server.call_ok("DELETE", server.path(made), {"preconditions": {field: made["metadata"][field]}})


# The Binding: node and annotations in one step, or a definite no.


async def test_a_binding_writes_node_and_annotations_in_one_version(server: ContractServer) -> None:
    made = await server.a_pod("a", annotations={"own": "1", "both": "1"}, labels={"both": "1"})
    start = await server.version()
    body = binding(
        made,
        node="nowhere",
        uid=made["metadata"]["uid"],
        resourceVersion=made["metadata"]["resourceVersion"],
        annotations={"card": "0", "both": "2"},
        labels={"card": "0", "both": "2"},
    )

    status, answer = await server.call("POST", f"{server.path(made)}/binding", body)
    async with server.watch(server.pods, resourceVersion=start) as watch:
        event = await watch.read_line()
        bound = await server.call_ok("GET", server.path(made))

    assert status == 201
    assert answer == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert event == {"type": "MODIFIED", "object": bound}
    assert bound["spec"] == made["spec"] | {"nodeName": "nowhere"}
    assert bound["metadata"]["annotations"] == {"own": "1", "both": "2", "card": "0"}
    assert bound["metadata"]["labels"] == {"both": "2", "card": "0"}
    assert bound["metadata"]["generation"] == made["metadata"]["generation"]
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_a_binding_to_a_missing_node_is_accepted(server: ContractServer) -> None:
    """So the binder must have looked for the node itself."""
    made = await server.a_pod("a")

    await server.call_ok("POST", f"{server.path(made)}/binding", binding(made, node="no-such-node"))

    assert (await server.call_ok("GET", server.path(made)))["spec"]["nodeName"] == "no-such-node"


async def test_binding_removes_the_nomination(server: ContractServer) -> None:
    made = await server.a_pod("a")
    nominated = {"status": {"nominatedNodeName": "elsewhere"}}
    await server.call_ok("PATCH", f"{server.path(made)}/status", nominated, content_type=MERGE)

    await server.call_ok("POST", f"{server.path(made)}/binding", binding(made))

    assert "nominatedNodeName" not in (await server.call_ok("GET", server.path(made)))["status"]


@pytest.mark.parametrize("node", ["nowhere", "elsewhere"], ids=["same node", "another node"])
async def test_a_bound_pod_is_not_bound_again(server: ContractServer, node: str) -> None:
    made = await server.a_bound_pod("a", node="nowhere")

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made, node=node, annotations={"x": "1"}))

    text = 'pod a is already assigned to node "nowhere"'
    assert_refused(answer, 409, "Conflict", text, details={"name": "a", "kind": "pods/binding"})
    assert await server.call_ok("GET", server.path(made)) == made


@pytest.mark.parametrize(("field", "word"), [("uid", "UID"), ("resourceVersion", "ResourceVersion")])
async def test_binding_checks_its_preconditions(server: ContractServer, field: str, word: str) -> None:
    made = await server.a_pod("a")

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made, **{field: "1"}))

    text = f"Precondition failed: {word} in precondition: 1, {word} in object meta: {made['metadata'][field]}"
    assert_refused(answer, 409, "Conflict", text, details={"name": "a", "kind": "pods"})
    assert await server.call_ok("GET", server.path(made)) == made


async def test_a_wrong_uid_is_reported_before_an_existing_assignment(server: ContractServer) -> None:
    made = await server.a_bound_pod("a")

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made, uid="other"))

    assert_refused(answer, 409, "Conflict", "Precondition failed: UID", details={"name": "a", "kind": "pods"})


async def test_a_pod_that_is_gone_is_not_bound(server: ContractServer) -> None:
    made = await server.a_pod("a")
    await server.delete_object(made)

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made))

    assert_refused(answer, 404, "NotFound", 'pods "a" not found', details={"name": "a", "kind": "pods"})


async def test_a_pod_of_the_same_name_but_another_uid_is_not_bound(server: ContractServer) -> None:
    old = await server.a_pod("a")
    await server.delete_object(old)
    new = await server.a_pod("a")

    answer = await server.call("POST", f"{server.path(new)}/binding", binding(new, uid=old["metadata"]["uid"]))

    assert_refused(answer, 409, "Conflict", "Precondition failed: UID", details={"name": "a", "kind": "pods"})


async def test_a_pod_being_deleted_is_not_bound(server: ContractServer) -> None:
    made = await server.a_pod("a", finalizers=["example.com/hold"])
    await server.call_ok("DELETE", server.path(made))

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made))
    await server.call_ok("PATCH", server.path(made), {"metadata": {"finalizers": None}}, content_type=MERGE)

    text = "pod a is being deleted, cannot be assigned to a host"
    assert_refused(answer, 409, "Conflict", text, details={"name": "a", "kind": "pods/binding"})


async def test_binding_a_terminating_bound_pod_is_refused_as_being_deleted(server: ContractServer) -> None:
    made = await server.a_bound_pod("a")
    await server.call_ok("DELETE", server.path(made))

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made))

    assert_refused(answer, 409, "Conflict", "is being deleted", details={"name": "a", "kind": "pods/binding"})


async def test_a_gated_pod_is_not_bound(server: ContractServer) -> None:
    body = pod("a")
    body["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    made = await server.call_ok("POST", server.pods, body)

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made))

    text = "pod a has non-empty .spec.schedulingGates"
    assert_refused(answer, 409, "Conflict", text, details={"name": "a", "kind": "pods/binding"})


BINDING_REFUSALS: dict[str, tuple[dict[str, Json], int, str | None, str]] = {
    "another pod's name": (
        {"metadata": {"name": "b"}},
        400,
        "BadRequest",
        "name in URL does not match name in Binding",
    ),
    "another namespace": (
        {"metadata": {"name": "a", "namespace": "b"}},
        400,
        "BadRequest",
        "the namespace of the provided object does not match",
    ),
    "an annotation that is no string": (
        {"metadata": {"name": "a", "annotations": {"x": 5}}},
        400,
        "BadRequest",
        "cannot be handled as a Binding",
    ),
    "no target": ({"target": {}}, 500, None, "target.name: Required value"),
    "a target that is no node": ({"target": {"kind": "Pod", "name": "b"}}, 500, None, "target.kind: Unsupported value"),
    "another kind": ({"kind": "Pod"}, 400, "BadRequest", "cannot be handled as a Binding"),
}


@pytest.mark.parametrize(("change", "code", "reason", "text"), BINDING_REFUSALS.values(), ids=BINDING_REFUSALS)
async def test_invalid_binding_is_refused(
    server: ContractServer, change: dict[str, Json], code: int, reason: str | None, text: str
) -> None:
    made = await server.a_pod("a")

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made) | change)

    assert_refused(answer, code, reason, text)
    assert await server.call_ok("GET", server.path(made)) == made


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "waiting"])
async def test_an_evicted_pod_is_terminating_with_a_reason(server: ContractServer, *, is_running: bool) -> None:
    made = await server.a_bound_pod("a")
    if is_running:
        await server.make_ready(made)

    status, answer = await server.call("POST", f"{server.path(made)}/eviction", eviction(made))

    assert status == 201
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    left = await server.call_ok("GET", server.path(made))
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    (why,) = [each for each in left["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (why["status"], why["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_terminating_pod_may_be_evicted_again(server: ContractServer) -> None:
    made = await server.a_bound_pod("a")
    await server.call_ok("POST", f"{server.path(made)}/eviction", eviction(made))

    status, _ = await server.call("POST", f"{server.path(made)}/eviction", eviction(made))

    assert status == 201


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "waiting"])
async def test_eviction_checks_its_preconditions(server: ContractServer, *, is_running: bool) -> None:
    made = await server.a_bound_pod("a")
    if is_running:
        await server.make_ready(made)
    before = await server.call_ok("GET", server.path(made))

    answer = await server.call("POST", f"{server.path(made)}/eviction", eviction(made, uid="other"))

    text = "the UID in the precondition (other) does not match the UID in record"
    assert_refused(answer, 409, "Conflict", text, details={"name": "a", "kind": "Pod"})
    assert await server.call_ok("GET", server.path(made)) == before


async def test_a_pod_that_is_gone_is_not_evicted(server: ContractServer) -> None:
    made = await server.a_pod("a")
    await server.delete_object(made)

    answer = await server.call("POST", f"{server.path(made)}/eviction", eviction(made))

    assert_refused(answer, 404, "NotFound", 'pods "a" not found', details={"name": "a", "kind": "pods"})


async def test_eviction_that_names_another_pod_is_refused(server: ContractServer) -> None:
    made = await server.a_pod("a")
    body = eviction(made) | {"metadata": {"name": "b"}}

    answer = await server.call("POST", f"{server.path(made)}/eviction", body)

    assert_refused(answer, 400, "BadRequest", "name in URL does not match name in Eviction object")


async def test_only_one_of_many_concurrent_bindings_wins(server: ContractServer) -> None:
    made = await server.a_pod("a")
    path = f"{server.path(made)}/binding"

    answers = await asyncio.gather(
        *(server.call("POST", path, binding(made, node=f"n-{n}", annotations={"card": str(n)})) for n in range(8))
    )

    assert sorted(status for status, _ in answers) == [201] + [409] * 7
    winner = next(number for number, (status, _) in enumerate(answers) if status == 201)
    bound = await server.call_ok("GET", server.path(made))
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == (f"n-{winner}", {"card": str(winner)})


# Events.


def _event(event_name: str, **involved: str) -> Json:
    return {
        "metadata": {"name": event_name},
        "involvedObject": involved,
        "reason": "GPUMemoryBound",
        "message": "card 0",
        "type": "Normal",
        "source": {"component": "vrampack"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
    }


async def test_an_event_is_written_and_counted_up(server: ContractServer) -> None:
    body = _event("a.1", kind="Pod", namespace=server.namespace, name="a", uid="1")

    status, made = await server.call("POST", server.events, body)
    path = f"{server.events}/a.1"
    patched = await server.call_ok("PATCH", path, {"count": 2, "message": "card 1"}, content_type=STRATEGIC)

    assert (status, made["kind"]) == (201, "Event")
    assert {key: made[key] for key in body if key != "metadata"} == {
        key: body[key] for key in body if key != "metadata"
    }
    assert (patched["count"], patched["message"], patched["reason"]) == (2, "card 1", "GPUMemoryBound")
    assert patched == await server.call_ok("GET", path)
    assert names(await server.call_ok("GET", server.events)) == ["a.1"]


@pytest.mark.parametrize(
    "involved", [{"kind": "Pod", "namespace": "kube-system"}, {"kind": "Node"}], ids=["another namespace", "a node"]
)
async def test_an_event_lives_in_the_namespace_of_what_it_is_about(
    server: ContractServer, involved: dict[str, str]
) -> None:
    body = _event("a.1", name="a", **involved)

    answer = await server.call("POST", server.events, body)

    assert_refused(answer, 422, "Invalid", "does not match event.namespace", details={"name": "a.1", "kind": "Event"})


async def test_an_event_about_a_node_lives_in_default(server: ContractServer) -> None:
    node = await server.a_node()
    name = node["metadata"]["name"]

    made = await server.call_ok("POST", "/api/v1/namespaces/default/events", _event(name, kind="Node", name=name))
    await server.call_ok("DELETE", f"/api/v1/namespaces/default/events/{name}")

    assert made["metadata"]["namespace"] == "default"


async def test_an_event_is_not_written_twice(server: ContractServer) -> None:
    body = _event("a.1", kind="Pod", namespace=server.namespace, name="a")
    await server.call_ok("POST", server.events, body)

    answer = await server.call("POST", server.events, body)

    assert_refused(answer, 409, "AlreadyExists", "", details={"name": "a.1", "kind": "events"})


# What is not there.


@pytest.mark.parametrize("path", ["/api/v1/nonsense", "/api/v1/namespaces/default/nonsense/a", "/apis/none/v1/all"])
async def test_an_unknown_resource_is_not_found(server: ContractServer, path: str) -> None:
    status, body = await server.call("GET", path)

    # for a group it does not know the real server answers in plain text
    assert status == 404
    if path.startswith("/api/"):
        assert_refused((status, body), 404, "NotFound", NOT_FOUND, details={})


async def test_posting_a_pod_without_a_namespace_or_onto_another_pod_is_refused(server: ContractServer) -> None:
    made = await server.a_pod("a")

    for path in ("/api/v1/pods", server.path(made)):
        answer = await server.call("POST", path, pod("b"))
        assert_refused(answer, 405, "MethodNotAllowed", "does not allow this method", details={})


@pytest.mark.parametrize("probe", ["/readyz", "/healthz", "/livez"])
async def test_probes_answer_ok(server: ContractServer, probe: str) -> None:
    assert await server.call("GET", probe) == (200, "ok")


async def test_version_endpoint_reports_the_kubernetes_release(server: ContractServer) -> None:
    answer = await server.call_ok("GET", "/version")

    assert (answer["major"], answer["minor"]) == ("1", "36")
    assert answer["gitVersion"].startswith("v1.36.")


async def test_a_body_may_be_three_mebibytes(server: ContractServer) -> None:
    body = pod("a", annotations={"x": "x" * 3 * 1024 * 1024})

    answer = await server.call("POST", server.pods, body)

    assert_refused(answer, 413, "RequestEntityTooLarge", "limit is 3145728", details={})


async def test_an_unknown_path_is_plain_text(server: ContractServer) -> None:
    assert await server.call("GET", "/nonsense") == (404, "404 page not found\n")


# For people with kubectl: what the server says about itself.


async def test_api_groups_are_listed(server: ContractServer) -> None:
    core, groups, apps = [await server.call_ok("GET", path) for path in ("/api", "/apis", "/apis/apps")]

    assert (core["kind"], core["versions"]) == ("APIVersions", ["v1"])
    assert (groups["kind"], apps["kind"], apps["name"]) == ("APIGroupList", "APIGroup", "apps")
    version = {"groupVersion": "apps/v1", "version": "v1"}
    assert (apps["versions"], apps["preferredVersion"]) == ([version], version)
    about = {key: apps[key] for key in ("name", "versions", "preferredVersion")}
    assert about in groups["groups"]


RESOURCES: dict[str, tuple[str, dict[str, Json]]] = {
    "pods": ("/api/v1", {"kind": "Pod", "singularName": "pod", "shortNames": ["po"], "categories": ["all"]}),
    "nodes": ("/api/v1", {"kind": "Node", "singularName": "node", "shortNames": ["no"], "namespaced": False}),
    "events": ("/api/v1", {"kind": "Event", "singularName": "event", "shortNames": ["ev"]}),
    "statefulsets": (
        "/apis/apps/v1",
        {"kind": "StatefulSet", "singularName": "statefulset", "shortNames": ["sts"], "categories": ["all"]},
    ),
    "deployments": (
        "/apis/apps/v1",
        {"kind": "Deployment", "singularName": "deployment", "shortNames": ["deploy"], "categories": ["all"]},
    ),
    "pods/binding": ("/api/v1", {"kind": "Binding", "singularName": ""}),
    "pods/eviction": ("/api/v1", {"kind": "Eviction", "singularName": "", "group": "policy", "version": "v1"}),
    "pods/status": ("/api/v1", {"kind": "Pod", "singularName": ""}),
    "nodes/status": ("/api/v1", {"kind": "Node", "singularName": "", "namespaced": False}),
    "statefulsets/status": ("/apis/apps/v1", {"kind": "StatefulSet", "singularName": ""}),
    "statefulsets/scale": ("/apis/apps/v1", {"kind": "Scale", "group": "autoscaling", "version": "v1"}),
    "deployments/status": ("/apis/apps/v1", {"kind": "Deployment", "singularName": ""}),
    "deployments/scale": ("/apis/apps/v1", {"kind": "Scale", "group": "autoscaling", "version": "v1"}),
}


@pytest.mark.parametrize("name", RESOURCES)
async def test_discovery_describes_every_resource(server: ContractServer, name: str) -> None:
    path, described = RESOURCES[name]

    answer = await server.call_ok("GET", path)

    assert (answer["kind"], answer["groupVersion"]) == ("APIResourceList", path.removeprefix("/api").lstrip("s/"))
    (entry,) = [each for each in answer["resources"] if each["name"] == name]
    described = {"namespaced": True, "categories": None, "shortNames": None, "group": None} | described
    assert {key: entry.get(key) for key in described} == described
    half = {"pods/binding": {"create"}, "pods/eviction": {"create"}}.get(name, {"get", "patch"})
    assert (half if "/" in name else {"create", "delete", "get", "list", "patch", "watch"}) <= {*entry["verbs"]}


@pytest.mark.parametrize("name", [name for name in RESOURCES if "/" not in name])
async def test_openapi_schema_declares_that_the_server_validates(server: ContractServer, name: str) -> None:
    """Where it does not, kubectl wants to know every field and refuses what it does not find."""
    root, described = RESOURCES[name]
    index = await server.call_ok("GET", "/openapi/v3")
    # the real server labels this one as plain text
    place = (json.loads(index) if isinstance(index, str) else index)["paths"][root.lstrip("/")]["serverRelativeURL"]

    address, _, query = place.partition("?")
    schema = await server.call_ok(
        "GET", address, accept="application/json", **dict(pair.split("=") for pair in query.split("&") if pair)
    )

    namespace = "/namespaces/{namespace}" if described.get("namespaced", True) else ""
    one = schema["paths"][f"{root}{namespace}/{name}/{{name}}"]
    meaning = {"group": "apps" if "apps" in root else "", "kind": described["kind"], "version": "v1"}
    for method, options in (("patch", {"dryRun", "fieldManager", "fieldValidation"}), ("delete", {"dryRun"})):
        assert one[method]["x-kubernetes-group-version-kind"] == meaning
        assert options <= {parameter["name"] for parameter in one[method]["parameters"]}


# Tables: what kubectl prints.

COLUMNS = {
    "pods": "Name Ready Status Restarts Age | IP Node Nominated_Node Readiness_Gates",
    "nodes": "Name Status Roles Age Version | Internal-IP External-IP OS-Image Kernel-Version Container-Runtime",
    "events": "Last_Seen Type Reason Object | Subobject Source | Message | First_Seen Count Name",
    "statefulsets": "Name Ready Age | Containers Images",
    "deployments": "Name Ready Up-to-date Available Age | Containers Images Selector",
}
"""Each column, those that only `-o wide` shows between bars."""


@pytest.mark.parametrize(("kind", "columns"), COLUMNS.items(), ids=COLUMNS)
async def test_table_has_the_columns_of_its_kind(server: ContractServer, kind: str, columns: str) -> None:
    answer = await server.call_ok(
        "GET", f"{RESOURCES[kind][0]}/{kind}", accept=TABLE, fieldSelector="metadata.name=none"
    )

    assert (answer["kind"], answer["apiVersion"], answer["rows"]) == ("Table", "meta.k8s.io/v1", [])
    parts = columns.split(" | ")
    wanted = [(name.replace("_", " "), place % 2) for place, part in enumerate(parts) for name in part.split()]
    assert [(column["name"], column["priority"]) for column in answer["columnDefinitions"]] == wanted
    assert {column["type"] for column in answer["columnDefinitions"]} == {"string"}
    assert [column["name"] for column in answer["columnDefinitions"] if column["format"] == "name"] == ["Name"]


async def cells(server: ContractServer, path: str) -> dict[str, Json]:
    """The first row, by the names of its columns; ages of up to 9 s are `now`."""
    table = await server.call_ok("GET", path, accept=TABLE)
    names = [column["name"] for column in table["columnDefinitions"]]
    row = dict(zip(names, table["rows"][0]["cells"], strict=True))
    return {key: "now" if isinstance(cell, str) and cell in SECONDS else cell for key, cell in row.items()}


SECONDS = {f"{seconds}s" for seconds in range(10)}


async def test_table_shows_a_new_pod(server: ContractServer) -> None:
    made = await server.a_pod("a")

    assert await cells(server, server.path(made)) == {
        "Name": "a",
        "Ready": "0/1",
        "Status": "Pending",
        "Restarts": "0",
        "Age": "now",
        "IP": "<none>",
        "Node": "<none>",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }


def _container(state: Json, *, ready: bool = False, restarts: int = 0) -> Json:
    return {"name": "main", "image": "", "imageID": "", "state": state, "ready": ready, "restartCount": restarts}


COMPLETED = _container({"terminated": {"exitCode": 0, "reason": "Completed"}})
POD_CELLS: dict[str, tuple[Json, dict[str, str]]] = {
    "running": (
        {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "podIPs": [{"ip": "10.0.0.7"}],
            "containerStatuses": [_container({"running": {}}, ready=True)],
        },
        {"Ready": "1/1", "Status": "Running", "IP": "10.0.0.7"},
    ),
    "running but not ready": (
        {"phase": "Running", "containerStatuses": [_container({"running": {}})]},
        {"Ready": "0/1", "Status": "Running"},
    ),
    "waiting after restarts": (
        {
            "phase": "Running",
            "containerStatuses": [_container({"waiting": {"reason": "CrashLoopBackOff"}}, restarts=3)],
        },
        {"Ready": "0/1", "Status": "CrashLoopBackOff", "Restarts": "3"},
    ),
    "completed": (
        {"phase": "Succeeded", "containerStatuses": [COMPLETED]},
        {"Ready": "0/1", "Status": "Completed"},
    ),
    "ended by a signal": (
        {"phase": "Failed", "containerStatuses": [_container({"terminated": {"exitCode": 1, "signal": 9}})]},
        {"Status": "Signal:9"},
    ),
    "ended with a code": (
        {"phase": "Failed", "containerStatuses": [_container({"terminated": {"exitCode": 3}})]},
        {"Status": "ExitCode:3"},
    ),
    "one over, another running and ready": (
        {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [COMPLETED, _container({"running": {}}, ready=True) | {"name": "other"}],
        },
        {"Status": "Running"},
    ),
    "one over, another running but not ready": (
        {
            "phase": "Running",
            "containerStatuses": [COMPLETED, _container({"running": {}}, ready=True) | {"name": "other"}],
        },
        {"Status": "NotReady"},
    ),
    "two reasons": (
        {
            "phase": "Pending",
            "containerStatuses": [
                _container({"waiting": {"reason": "ErrImagePull"}}),
                _container({"waiting": {"reason": "CrashLoopBackOff"}}) | {"name": "other"},
            ],
        },
        {"Status": "ErrImagePull"},
    ),
    "evicted": ({"phase": "Failed", "reason": "Evicted"}, {"Status": "Evicted"}),
    "nominated": ({"phase": "Pending", "nominatedNodeName": "n"}, {"Status": "Pending", "Nominated Node": "n"}),
}


@pytest.mark.parametrize(("status", "wanted"), POD_CELLS.values(), ids=POD_CELLS)
async def test_table_shows_the_status_of_a_pod(server: ContractServer, status: Json, wanted: dict[str, str]) -> None:
    made = await server.a_pod("a")
    await server.call_ok("PATCH", f"{server.path(made)}/status", {"status": status}, content_type=MERGE)

    row = await cells(server, server.path(made))

    assert {name: row[name] for name in wanted} == wanted


async def test_table_shows_a_deleted_bound_pod_as_terminating(server: ContractServer) -> None:
    made = await server.a_bound_pod("a")
    await server.call_ok("DELETE", server.path(made))

    row = await cells(server, server.path(made))

    assert (row["Status"], row["Node"]) == ("Terminating", "nowhere")


NODE_CELLS: dict[str, tuple[Json, Json, Json, dict[str, str]]] = {
    "nothing known": (
        {},
        {},
        {},
        {
            "Status": "Unknown",
            "Roles": "<none>",
            "Version": "",
            "Internal-IP": "<none>",
            "External-IP": "<none>",
            "OS-Image": "<unknown>",
            "Kernel-Version": "<unknown>",
            "Container-Runtime": "<unknown>",
        },
    ),
    "ready": ({}, {}, {"conditions": [{"type": "Ready", "status": "True"}]}, {"Status": "Ready"}),
    "not ready": ({}, {}, {"conditions": [{"type": "Ready", "status": "False"}]}, {"Status": "NotReady"}),
    "not heard of": ({}, {}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}, {"Status": "NotReady"}),
    "cordoned": (
        {},
        {"unschedulable": True},
        {"conditions": [{"type": "Ready", "status": "True"}]},
        {"Status": "Ready,SchedulingDisabled"},
    ),
    "with roles": ({"node-role.kubernetes.io/gpu": "", "kubernetes.io/role": "edge"}, {}, {}, {"Roles": "edge,gpu"}),
    "with an address": (
        {},
        {},
        {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}]},
        {"Internal-IP": "10.0.0.1", "External-IP": "<none>"},
    ),
    "with a kubelet": ({}, {}, {"nodeInfo": {"kubeletVersion": "v1.36.3"}}, {"Version": "v1.36.3"}),
}


@pytest.mark.parametrize(("labels", "spec", "status", "wanted"), NODE_CELLS.values(), ids=NODE_CELLS)
async def test_table_shows_a_node(
    server: ContractServer, labels: Json, spec: Json, status: Json, wanted: dict[str, str]
) -> None:
    made = await server.a_node(**status)
    patch = {"metadata": {"labels": labels}, "spec": spec}
    await server.call_ok("PATCH", server.path(made), patch, content_type=MERGE)

    row = await cells(server, server.path(made))

    assert {name: row[name] for name in wanted} == wanted
    assert (row["Name"], row["Age"]) == (made["metadata"]["name"], "now")


async def test_table_shows_an_event(server: ContractServer) -> None:
    await server.call_ok("POST", server.events, _event("a.1", kind="Pod", namespace=server.namespace, name="a"))

    row = await cells(server, f"{server.events}/a.1")

    assert row.pop("Last Seen") == row.pop("First Seen")
    assert row == {
        "Type": "Normal",
        "Reason": "GPUMemoryBound",
        "Object": "pod/a",
        "Subobject": "",
        "Source": "vrampack",
        "Message": "card 0",
        "Count": 1,
        "Name": "a.1",
    }


async def test_table_shows_workloads(server: ContractServer) -> None:
    stateful = await server.a_workload("statefulsets", "s", replicas=2)
    deployed = await server.a_workload("deployments", "d", replicas=0)
    await server.wait_for_state(server.deployments, lambda items: items[0]["status"].get("observedGeneration") == 1)

    containers = {"Age": "now", "Containers": "main", "Images": "example.com/app:1"}
    assert await cells(server, server.path(stateful)) == {"Name": "s", "Ready": "0/2", **containers}
    wanted = {"Name": "d", "Ready": "0/0", "Up-to-date": 0, "Available": 0, **containers, "Selector": "app=d"}
    assert await cells(server, server.path(deployed)) == wanted


async def test_table_of_a_list_is_paged_like_the_list(server: ContractServer) -> None:
    for name in ("a", "b", "c"):
        await server.a_pod(name)

    first = await server.call_ok("GET", server.pods, accept=TABLE, limit=2)
    second = await server.call_ok("GET", server.pods, accept=TABLE, limit=2, continue_=first["metadata"]["continue"])

    assert [[row["cells"][0] for row in page["rows"]] for page in (first, second)] == [["a", "b"], ["c"]]
    assert first["metadata"]["remainingItemCount"] == 1
    assert int(first["metadata"]["resourceVersion"]) > 0


INCLUDED = {"": "PartialObjectMetadata", "Metadata": "PartialObjectMetadata", "Object": "Pod", "None": None}


@pytest.mark.parametrize(("include", "kind"), INCLUDED.items(), ids=[word or "nothing said" for word in INCLUDED])
async def test_table_row_carries_as_much_of_the_object_as_requested(
    server: ContractServer, include: str, kind: str | None
) -> None:
    made = await server.a_pod("a")

    table = await server.call_ok("GET", server.path(made), accept=TABLE, includeObject=include)

    included = table["rows"][0]["object"]
    assert (included and included["kind"]) == kind
    if included is not None:
        assert included["metadata"]["uid"] == made["metadata"]["uid"]
        assert ("spec" in included) == (kind == "Pod")


async def test_an_unknown_include_object_value_is_refused(server: ContractServer) -> None:
    answer = await server.call("GET", server.pods, accept=TABLE, includeObject="All")

    assert_refused(answer, 400, "BadRequest", "includeObject")


async def test_a_watch_of_a_table_sends_its_columns_once(server: ContractServer) -> None:
    start = await server.version()

    async with server.watch(server.pods, accept=TABLE, resourceVersion=start) as watch:
        made = await server.a_pod("a")
        await server.annotate(made, x="1")
        await server.delete_object(made)
        added, modified, _, deleted = await watch.read_lines(4)

    assert [event["type"] for event in (added, modified, deleted)] == ["ADDED", "MODIFIED", "DELETED"]
    assert len(added["object"]["columnDefinitions"]) == len(added["object"]["rows"][0]["cells"])
    assert modified["object"]["columnDefinitions"] is None
    assert [event["object"]["rows"][0]["cells"][0] for event in (added, modified, deleted)] == ["a"] * 3
    version = modified["object"]["rows"][0]["object"]["metadata"]["resourceVersion"]
    assert modified["object"]["metadata"]["resourceVersion"] == version


async def test_the_accept_header_chooses_the_response_format(server: ContractServer) -> None:
    made = await server.a_pod("a")

    old_form = await server.call_ok("GET", server.path(made), accept="application/json;as=Table;v=v0,application/json")
    answer = await server.call("GET", server.path(made), accept="text/plain")

    assert old_form["kind"] == "Pod"
    assert answer[0] == 406
    assert answer[1]["reason"] == "NotAcceptable"


# Selectors: what is asked for, on a list and on a watch.

SELECTED: dict[str, tuple[dict[str, str], str]] = {
    "equal": ({"labelSelector": "app=a"}, "a1 a2"),
    "equal, written twice": ({"labelSelector": "app==a"}, "a1 a2"),
    "not equal": ({"labelSelector": "app!=a"}, "b1 none"),
    "in": ({"labelSelector": "app in (a, b)"}, "a1 a2 b1"),
    "not in": ({"labelSelector": "app notin (a)"}, "b1 none"),
    "exists": ({"labelSelector": "app"}, "a1 a2 b1"),
    "does not exist": ({"labelSelector": "!app"}, "none"),
    "both": ({"labelSelector": "app in (a,b),tier=2"}, "a2"),
    "a key with a domain": ({"labelSelector": "example.com/odd=yes"}, "a1"),
    "nothing": ({"labelSelector": "app=none"}, ""),
    "an empty selector": ({"labelSelector": "", "fieldSelector": ""}, "a1 a2 b1 none"),
    "a name": ({"fieldSelector": "metadata.name=a1"}, "a1"),
    "not a name": ({"fieldSelector": "metadata.name!=a1"}, "a2 b1 none"),
    "bound": ({"fieldSelector": "spec.nodeName=nowhere"}, "b1"),
    "not bound": ({"fieldSelector": "spec.nodeName="}, "a1 a2 none"),
    "a phase": ({"fieldSelector": "status.phase=Pending"}, "a1 b1 none"),
    "not over": ({"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}, "a1 b1 none"),
    "a scheduler": ({"fieldSelector": "spec.schedulerName==default-scheduler"}, "a1 a2 b1 none"),
    "both selectors": ({"fieldSelector": "spec.nodeName=", "labelSelector": "app=a,tier"}, "a2"),
}


@pytest.mark.parametrize(("query", "wanted"), SELECTED.values(), ids=SELECTED)
async def test_list_returns_only_selected_pods(server: ContractServer, query: dict[str, str], wanted: str) -> None:
    await server.a_pod("a1", labels={"app": "a", "example.com/odd": "yes"})
    over = await server.a_pod("a2", labels={"app": "a", "tier": "2"})
    await server.call_ok("PATCH", f"{server.path(over)}/status", {"status": {"phase": "Failed"}}, content_type=MERGE)
    await server.a_bound_pod("b1", labels={"app": "b"})
    await server.a_pod("none")

    assert names(await server.call_ok("GET", server.pods, **query)) == wanted.split()


async def test_events_are_selected_by_their_involved_object(server: ContractServer) -> None:
    for name in ("a", "b"):
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": server.namespace, "name": name, "uid": f"uid-{name}"}
        await server.call_ok("POST", server.events, _event(f"{name}.1", **about))

    selected = f"involvedObject.name=a,involvedObject.namespace={server.namespace},involvedObject.uid=uid-a"
    for selector in (
        selected,
        "involvedObject.kind=Pod,involvedObject.apiVersion=v1,reason=GPUMemoryBound,type!=Warning,involvedObject.name!=b",
    ):
        assert names(await server.call_ok("GET", server.events, fieldSelector=selector)) == ["a.1"]


@pytest.mark.parametrize("kind", ["statefulsets", "deployments"])
async def test_workloads_are_selected_by_name_and_label(server: ContractServer, kind: Workload) -> None:
    await server.a_workload(kind, "a", replicas=0)
    labelled = await server.a_workload(kind, "b", replicas=0)
    patch = {"metadata": {"labels": {"x": "1"}}}
    await server.call_ok("PATCH", server.path(labelled), patch, content_type=MERGE)

    by_name = await server.call_ok("GET", server.workloads(kind), fieldSelector="metadata.name=a")
    by_label = await server.call_ok("GET", server.workloads(kind), labelSelector="x=1")

    assert (names(by_name), names(by_label)) == (["a"], ["b"])
    assert by_name["kind"] == f"{labelled['kind']}List"


async def test_pages_hold_only_selected_pods(server: ContractServer) -> None:
    for number in range(6):
        await server.a_pod(f"p-{number}", labels={"odd": "yes"} if number % 2 else {})

    first = await server.call_ok("GET", server.pods, limit=2, labelSelector="odd")
    again = {"limit": 2, "labelSelector": "odd", "continue_": first["metadata"]["continue"]}
    second = await server.call_ok("GET", server.pods, **again)

    assert [names(first), names(second)] == [["p-1", "p-3"], ["p-5"]]
    assert "remainingItemCount" not in first["metadata"]


async def test_a_watch_reports_objects_that_start_or_stop_matching_the_selector(server: ContractServer) -> None:
    start = await server.version()

    async def relabel(item: Json, label: str) -> None:
        await server.call_ok("PATCH", server.path(item), {"metadata": {"labels": {"app": label}}}, content_type=MERGE)

    async with server.watch(server.pods, resourceVersion=start, labelSelector="app=x") as watch:
        made = await server.a_pod("a", labels={"app": "y"})
        await relabel(made, "x")
        await server.annotate(made, n="1")
        await relabel(made, "y")
        await server.annotate(made, n="2")
        await server.delete_object(made)
        await server.a_pod("b", labels={"app": "x"})
        events = await watch.read_lines(4)

    assert describe_events(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]


async def test_a_watch_by_field_reports_a_binding_as_a_deletion(server: ContractServer) -> None:
    start = await server.version()

    async with (
        server.watch(server.pods, resourceVersion=start, fieldSelector="spec.nodeName=") as unbound,
        server.watch(server.pods, resourceVersion=start, fieldSelector="spec.nodeName=nowhere") as bound,
    ):
        made = await server.a_bound_pod("a")
        added, gone = await unbound.read_lines(2)
        come = await bound.read_line()

    assert describe_events([added, gone, come]) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    # it is reported as it was, with the version at which it was deleted
    assert "nodeName" not in gone["object"]["spec"]
    assert gone["object"]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_watch_begins_with_selected_objects_only(server: ContractServer) -> None:
    await server.a_pod("a", labels={"app": "x"})
    await server.a_pod("b")
    await server.call_ok("GET", server.pods)  # has the real server's cache catch up

    async with server.watch(server.pods, labelSelector="app=x") as watch:
        first = await watch.read_line()
        await server.a_pod("c", labels={"app": "x"})
        assert describe_events([first, await watch.read_line()]) == [("ADDED", "a"), ("ADDED", "c")]


SELECTOR_REFUSALS: dict[str, tuple[str, dict[str, str], str]] = {
    "an unknown field of a pod": ("pods", {"fieldSelector": "spec.color=red"}, "field label not supported: spec.color"),
    "an unknown field of a node": (
        "nodes",
        {"fieldSelector": "metadata.namespace=a"},
        "field label not supported: metadata.namespace",
    ),
    "an unknown field of an event": ("events", {"fieldSelector": "count=1"}, "field label not supported: count"),
    "an unknown field of a workload": (
        "deployments",
        {"fieldSelector": "spec.replicas=1"},
        '"spec.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"',
    ),
    "a field without a value": ("pods", {"fieldSelector": "rubbish"}, "can't understand 'rubbish'"),
    "a set without parentheses": ("pods", {"labelSelector": "a in b"}, "unable to parse requirement"),
    "a key that is none": ("pods", {"labelSelector": "-a=b"}, "unable to parse requirement"),
    "a value that is none": ("pods", {"labelSelector": "a=*"}, "unable to parse requirement"),
    "two values": ("pods", {"labelSelector": "a=b c"}, ""),
}


@pytest.mark.parametrize("watch", [{}, {"watch": "true"}], ids=["list", "watch"])
@pytest.mark.parametrize(("kind", "query", "text"), SELECTOR_REFUSALS.values(), ids=SELECTOR_REFUSALS)
async def test_a_selector_is_refused(
    server: ContractServer, kind: str, query: dict[str, str], text: str, watch: dict[str, str]
) -> None:
    answer = await server.call("GET", f"{RESOURCES[kind][0]}/{kind}", **query, **watch)

    assert_refused(answer, 400, "BadRequest", text)


@pytest.mark.parametrize(
    "query",
    [{"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, {}, {"resourceVersion": 0}],
    ids=["asked for", "no version", "version 0"],
)
async def test_a_watch_marks_the_end_of_initial_events(server: ContractServer, query: dict[str, Json]) -> None:
    """To clients that accept bookmarks. client-go asks for this instead of a list."""
    for name in ("a", "b"):
        await server.a_pod(name, labels={"app": "x"})
    await server.a_pod("c")
    await server.call_ok("GET", server.pods)  # has the real server's cache catch up

    async with server.watch(server.pods, labelSelector="app=x", allowWatchBookmarks="true", **query) as watch:
        *present, end = await watch.read_lines(3)
        await server.a_pod("d", labels={"app": "x"})
        later = await watch.read_line()

    assert sorted(describe_events(present)) == [("ADDED", "a"), ("ADDED", "b")]
    marked = end["object"]["metadata"]["annotations"]
    assert (end["type"], marked) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})
    assert describe_events([later]) == [("ADDED", "d")]


async def test_a_watch_with_initial_events_gets_them_at_any_version(server: ContractServer) -> None:
    await server.a_pod("a")
    start = await server.version()

    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": start}
    async with server.watch(server.pods, **query) as watch:
        assert describe_events([await watch.read_line()]) == [("ADDED", "a")]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"sendInitialEvents": "true"}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ({"sendInitialEvents": "false"}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ({"resourceVersionMatch": "NotOlderThan"}, "forbidden for watch unless sendInitialEvents is provided"),
    ],
    ids=["without its match", "a no without its match", "a match alone"],
)
async def test_a_watch_with_incomplete_initial_events_options_is_refused(
    server: ContractServer, query: dict[str, str], text: str
) -> None:
    answer = await server.call("GET", server.pods, watch="true", **query)

    details = {"kind": "ListOptions", "group": "meta.k8s.io"}
    assert_refused(answer, 422, "Invalid", text, details=details)


# Patches with the directives that kubectl writes.

STRATEGIC_PATCHES: dict[str, tuple[Json, Json]] = {
    "an item changed and one added, in the order that is told": (
        {
            "$setElementOrder/containers": [{"name": "new"}, {"name": "main"}, {"name": "side"}],
            "containers": [{"name": "new", "image": "new:1"}, {"name": "main", "image": "main:2"}],
        },
        [("new", "new:1"), ("main", "main:2"), ("side", "side:1")],
    ),
    "an item deleted": (
        {"containers": [{"$patch": "delete", "name": "main"}]},
        [("side", "side:1")],
    ),
    "another order": (
        {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]},
        [("side", "side:1"), ("main", "main:1")],
    ),
    "the list replaced": (
        {"containers": [{"$patch": "replace"}, {"name": "only", "image": "only:1"}]},
        [("only", "only:1")],
    ),
    "an item ahead of the one it was ahead of": (
        {"containers": [{"name": "side", "image": "side:2"}, {"name": "new", "image": "new:1"}]},
        [("main", "main:1"), ("side", "side:2"), ("new", "new:1")],
    ),
}


@pytest.mark.parametrize(("patch", "wanted"), STRATEGIC_PATCHES.values(), ids=STRATEGIC_PATCHES)
async def test_strategic_patch_leaves_the_expected_containers(
    server: ContractServer, patch: Json, wanted: Json
) -> None:
    body = workload("a", replicas=0)
    body["spec"]["template"]["spec"]["containers"] = [{"name": name, "image": f"{name}:1"} for name in ("main", "side")]
    made = await server.call_ok("POST", server.deployments, body)

    template = {"spec": {"template": {"spec": patch}}}
    patched = await server.call_ok("PATCH", server.path(made), template, content_type=STRATEGIC)

    containers = patched["spec"]["template"]["spec"]["containers"]
    assert [(container["name"], container["image"]) for container in containers] == wanted


async def test_strategic_patch_with_retain_keys_drops_the_other_keys(server: ContractServer) -> None:
    made = await server.a_workload("deployments", "a", replicas=0)

    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    patched = await server.call_ok("PATCH", server.path(made), patch, content_type=STRATEGIC)

    assert patched["spec"]["strategy"] == {"type": "Recreate"}


async def test_strategic_patch_merges_finalizers(server: ContractServer) -> None:
    made = await server.a_pod("a", finalizers=["example.com/one", "example.com/two"])

    more = {"metadata": {"finalizers": ["example.com/three"]}}
    less = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one", "example.com/three"]}}
    joined = await server.call_ok("PATCH", server.path(made), more, content_type=STRATEGIC)
    left = await server.call_ok("PATCH", server.path(made), less, content_type=STRATEGIC)
    await server.call_ok("PATCH", server.path(made), {"metadata": {"finalizers": None}}, content_type=MERGE)

    assert sorted(joined["metadata"]["finalizers"]) == ["example.com/one", "example.com/three", "example.com/two"]
    assert left["metadata"]["finalizers"] == ["example.com/two"]


async def test_patch_may_repeat_a_number_that_is_stored_as_a_string(server: ContractServer) -> None:
    """As `kubectl apply` does with a manifest that says `gpu-mem: 4`, every time."""
    made = await server.a_pod("a")

    patch = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": 4}}}]}}
    patched = await server.call_ok("PATCH", server.path(made), patch, content_type=STRATEGIC)

    assert patched["spec"] == made["spec"]


# Dry runs: everything but the writing.


async def test_dry_run_creation_creates_nothing(server: ContractServer) -> None:
    status, made = await server.call("POST", server.pods, pod("a"), dryRun="All", fieldManager="x")

    assert (status, made["metadata"]["name"]) == (201, "a")
    assert len(made["metadata"]["uid"]) == 36
    assert "resourceVersion" not in made["metadata"]
    assert names(await server.call_ok("GET", server.pods)) == []


async def test_dry_run_patch_changes_nothing(server: ContractServer) -> None:
    made = await server.a_pod("a")
    patch = {"metadata": {"labels": {"x": "1"}}}

    patched = await server.call_ok("PATCH", server.path(made), patch, content_type=MERGE, dryRun="All")

    assert patched["metadata"]["labels"] == {"x": "1"}
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert await server.call_ok("GET", server.path(made)) == made


@pytest.mark.parametrize(
    ("body", "query"), [(None, {"dryRun": "All"}), ({"dryRun": ["All"]}, {})], ids=["in the query", "in the body"]
)
async def test_dry_run_deletion_deletes_nothing(server: ContractServer, body: Json, query: dict[str, str]) -> None:
    made = await server.a_pod("a")

    answer = await server.call_ok("DELETE", server.path(made), body, **query)

    assert answer["metadata"]["name"] == "a"
    assert await server.call_ok("GET", server.path(made)) == made


async def test_dry_run_binding_binds_nothing(server: ContractServer) -> None:
    made = await server.a_pod("a")

    status, _ = await server.call("POST", f"{server.path(made)}/binding", binding(made), dryRun="All")

    assert status == 201
    assert await server.call_ok("GET", server.path(made)) == made


async def test_dry_run_is_refused_like_a_real_write(server: ContractServer) -> None:
    await server.a_pod("a")

    answer = await server.call("POST", server.pods, pod("a"), dryRun="All")

    assert_refused(answer, 409, "AlreadyExists", "", details={"name": "a", "kind": "pods"})


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_unknown_dry_run_value_is_refused(server: ContractServer, method: str) -> None:
    made = await server.a_pod("a")
    path = server.pods if method == "POST" else server.path(made)
    body = {"POST": pod("b"), "PATCH": {"metadata": {"labels": {"x": "1"}}}, "DELETE": None}[method]

    answer = await server.call(
        method, path, body, content_type=MERGE if method == "PATCH" else "application/json", dryRun="Some"
    )

    options = {"POST": "CreateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}[method]
    assert_refused(answer, 422, "Invalid", 'dryRun: Unsupported value: ["Some"]', details={"kind": options})
    assert await server.call_ok("GET", server.path(made)) == made


async def test_a_write_may_set_field_manager_and_field_validation(server: ContractServer) -> None:
    query = {"fieldManager": "kubectl-client-side-apply", "fieldValidation": "Strict"}

    made = await server.call_ok("POST", server.pods, pod("a"), **query)
    patch = {"metadata": {"labels": {"x": "1"}}}
    patched = await server.call_ok("PATCH", server.path(made), patch, content_type=STRATEGIC, **query)

    assert patched["metadata"]["labels"] == {"x": "1"}


# StatefulSets and Deployments as objects.

WORKLOADS: tuple[Workload, ...] = ("statefulsets", "deployments")
TEMPLATE_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
WORKLOAD_DEFAULTS: dict[Workload, Json] = {
    "statefulsets": {
        "replicas": 1,
        "serviceName": "",
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    "deployments": {
        "replicas": 1,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
}


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_new_workload_has_defaults(server: ContractServer, kind: Workload) -> None:
    body = workload("a") | {"status": {"replicas": 7}}

    status, made = await server.call("POST", server.workloads(kind), body)

    assert (status, made["apiVersion"], made["metadata"]["generation"]) == (201, "apps/v1", 1)
    template = made["spec"].pop("template")
    assert made["spec"] == {"selector": {"matchLabels": {"app": "a"}}, **WORKLOAD_DEFAULTS[kind]}
    assert template["metadata"] == {"labels": {"app": "a"}}
    (container,) = template["spec"].pop("containers")
    assert template["spec"] == TEMPLATE_DEFAULTS
    # posted as the number 4; requests are a pod's to derive
    assert container["resources"] == {"limits": {"aliyun.com/gpu-mem": "4"}}
    assert made["status"].get("replicas", 0) == 0


def _change(**changes: Json) -> Callable[[Json], None]:
    """Sets fields of the spec; None takes one away."""

    def change(spec: Json) -> None:
        for path, value in changes.items():
            *way, last = path.split("__")
            place = spec
            for word in way:
                place = place[word]
            if value is None:
                del place[last]
            else:
                place[last] = value

    return change


MISMATCH = "`selector` does not match template `labels`"
WORKLOAD_REFUSALS: dict[str, tuple[Callable[[Json], None], list[tuple[str, str, str]]]] = {
    "another selector": (
        _change(selector={"matchLabels": {"app": "b"}}),
        [("FieldValueInvalid", f'Invalid value: {{"app":"a"}}: {MISMATCH}', "spec.template.metadata.labels")],
    ),
    "an expression that does not hold": (
        _change(selector={"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
        [("FieldValueInvalid", f'Invalid value: {{"app":"a"}}: {MISMATCH}', "spec.template.metadata.labels")],
    ),
    "no selector": (
        _change(selector=None),
        [
            ("FieldValueRequired", "Required value", "spec.selector"),
            ("FieldValueInvalid", f'Invalid value: {{"app":"a"}}: {MISMATCH}', "spec.template.metadata.labels"),
        ],
    ),
    "fewer than none": (
        _change(replicas=-1),
        [("FieldValueInvalid", "Invalid value: -1: must be greater than or equal to 0", "spec.replicas")],
    ),
    "no container": (
        _change(template__spec__containers=[]),
        [("FieldValueRequired", "Required value", "spec.template.spec.containers")],
    ),
    "pods that end": (
        _change(template__spec__restartPolicy="Never"),
        [
            (
                "FieldValueNotSupported",
                'Unsupported value: "Never": supported values: "Always"',
                "spec.template.spec.restartPolicy",
            )
        ],
    ),
}


@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize(("change", "causes"), WORKLOAD_REFUSALS.values(), ids=WORKLOAD_REFUSALS)
async def test_invalid_workload_is_refused(
    server: ContractServer, kind: Workload, change: Callable[[Json], None], causes: list[tuple[str, str, str]]
) -> None:
    body = workload("a")
    change(body["spec"])

    answer = await server.call("POST", server.workloads(kind), body)

    listed = [{"reason": reason, "message": message, "field": field} for reason, message, field in causes]
    name = {"statefulsets": "StatefulSet", "deployments": "Deployment"}[kind]
    details = {"name": "a", "group": "apps", "kind": name, "causes": listed}
    assert_refused(answer, 422, "Invalid", f'{name}.apps "a" is invalid: ', details=details)
    assert names(await server.call_ok("GET", server.workloads(kind))) == []


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_workload_with_an_empty_selector_is_refused(server: ContractServer, kind: Workload) -> None:
    answer = await server.call("POST", server.workloads(kind), workload("a", selector={}))

    text = f"spec.selector: Invalid value: {{}}: empty selector is invalid for {kind.removesuffix('s')}"
    assert_refused(answer, 422, "Invalid", text)


async def test_stateful_set_fields_are_validated(server: ContractServer) -> None:
    policy = await server.call("POST", server.statefulsets, workload("a", podManagementPolicy="Random"))
    dotted = await server.call("POST", server.statefulsets, workload("a.b"))

    text = "spec.podManagementPolicy: Invalid value: \"Random\": must be 'OrderedReady' or 'Parallel'"
    assert_refused(policy, 422, "Invalid", text)
    assert_refused(dotted, 422, "Invalid", 'metadata.name: Invalid value: "a.b"')


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_refusal_about_a_workload_names_its_group(server: ContractServer, kind: Workload) -> None:
    made = await server.a_workload(kind, "a", replicas=0)
    path = server.workloads(kind)

    missing = await server.call("GET", f"{path}/nobody")
    taken = await server.call("POST", path, workload("a"))
    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 0}}
    old = await server.call("PATCH", server.path(made), stale, content_type=MERGE)
    pods = await server.call("POST", path, pod("b"))

    details = {"group": "apps", "kind": kind}
    assert_refused(missing, 404, "NotFound", f'{kind}.apps "nobody" not found', details=details)
    assert_refused(taken, 409, "AlreadyExists", f'{kind}.apps "a" already exists', details=details)
    assert_refused(old, 409, "Conflict", f'on {kind}.apps "a": the object has been modified', details=details)
    assert_refused(pods, 400, "BadRequest", 'Pod in version "v1" cannot be handled as a')


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_patch_of_the_spec_increments_the_generation(server: ContractServer, kind: Workload) -> None:
    made = await server.a_workload(kind, "a", replicas=0)
    quiet = {"metadata": {"labels": {"x": "1"}}, "spec": {"replicas": 0}}
    loud = {"spec": {"template": {"metadata": {"labels": {"more": "1"}}}}}

    same = await server.call_ok("PATCH", server.path(made), quiet, content_type=MERGE)
    other = await server.call_ok("PATCH", server.path(made), loud, content_type=MERGE)
    default = await server.call_ok("PATCH", server.path(made), {"spec": {"replicas": None}}, content_type=MERGE)

    assert [item["metadata"]["generation"] for item in (same, other, default)] == [1, 2, 3]
    assert default["spec"]["replicas"] == 1


FIXED: dict[str, tuple[Workload, Json, str]] = {
    "a stateful set's service": (
        "statefulsets",
        {"serviceName": "other"},
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template'",
    ),
    "a stateful set's policy": ("statefulsets", {"podManagementPolicy": "Parallel"}, "spec: Forbidden: updates to"),
    "a deployment's selector": (
        "deployments",
        {"selector": {"matchLabels": {"app": "b"}}, "template": {"metadata": {"labels": {"app": "b"}}}},
        'spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable',
    ),
    "labels that the selector no longer takes": (
        "deployments",
        {"template": {"metadata": {"labels": {"app": "b"}}}},
        MISMATCH,
    ),
}


@pytest.mark.parametrize(("kind", "spec", "text"), FIXED.values(), ids=FIXED)
async def test_immutable_workload_fields_are_kept(
    server: ContractServer, kind: Workload, spec: Json, text: str
) -> None:
    made = await server.a_workload(kind, "a", replicas=0)

    answer = await server.call("PATCH", server.path(made), {"spec": spec}, content_type=MERGE)

    assert_refused(answer, 422, "Invalid", text)
    assert (await server.call_ok("GET", server.path(made)))["spec"] == made["spec"]


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_status_patch_of_a_workload_does_not_change_its_spec(server: ContractServer, kind: Workload) -> None:
    made = await server.a_workload(kind, "a", replicas=0)
    condition = {"type": "Seen", "status": "True", "lastTransitionTime": None}
    patch = {"status": {"conditions": [condition]}, "spec": {"replicas": 9}}

    patched = await server.call_ok("PATCH", f"{server.path(made)}/status", patch, content_type=STRATEGIC)

    assert "Seen" in [each["type"] for each in patched["status"]["conditions"]]
    assert (patched["spec"], patched["metadata"]["generation"]) == (made["spec"], 1)


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_workload_is_scaled(server: ContractServer, kind: Workload) -> None:
    made = await server.a_workload(kind, "a", replicas=0)
    path = f"{server.path(made)}/scale"
    patch = {"spec": {"replicas": 2}}

    dry = await server.call_ok("PATCH", path, patch, content_type=MERGE, dryRun="All")
    before = await server.call_ok("GET", path)
    scaled = await server.call_ok("PATCH", path, patch, content_type=MERGE)

    # a zero is left out
    assert (dry["spec"], before["spec"], scaled["spec"]) == ({"replicas": 2}, {}, {"replicas": 2})
    assert (scaled["kind"], scaled["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scaled["metadata"]["uid"] == made["metadata"]["uid"]
    assert scaled["status"]["selector"] == "app=a"
    assert (await server.call_ok("GET", server.path(made)))["spec"]["replicas"] == 2


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_scale_is_refused(server: ContractServer, kind: Workload) -> None:
    made = await server.a_workload(kind, "a", replicas=0)

    negative = {"spec": {"replicas": -1}}
    answer = await server.call("PATCH", f"{server.path(made)}/scale", negative, content_type=MERGE)
    missing = await server.call("PATCH", f"{server.workloads(kind)}/nobody/scale", negative, content_type=MERGE)

    details = {"name": "a", "group": "autoscaling", "kind": "Scale"}
    assert_refused(answer, 422, "Invalid", "must be greater than or equal to 0", details=details)
    assert_refused(missing, 404, "NotFound", f'{kind}.apps "nobody" not found')


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_workload_is_deleted_in_one_step(server: ContractServer, kind: Workload) -> None:
    made = await server.a_workload(kind, "a", replicas=0)

    answer = await server.call_ok("DELETE", server.path(made), {"propagationPolicy": "Background"})

    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    details = {"name": "a", "group": "apps", "kind": kind, "uid": made["metadata"]["uid"]}
    assert answer["details"] == details
    assert_refused(await server.call("GET", server.path(made)), 404, "NotFound", "")


async def test_a_deletion_with_an_unknown_policy_is_refused(server: ContractServer) -> None:
    made = await server.a_workload("deployments", "a", replicas=0)

    answer = await server.call("DELETE", server.path(made), {"propagationPolicy": "Sideways"})

    assert_refused(answer, 422, "Invalid", "propagationPolicy: Unsupported value", details={"kind": "DeleteOptions"})


# The pods of workloads, as controllers make them. No kubelet runs: a pod is ready when a test says so.


def _owner(item: Json) -> Json:
    (owner,) = item["metadata"]["ownerReferences"]
    return owner


def _names(items: list[Json]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


async def _observed(server: ContractServer, path: str, *, generation: int, replicas: int) -> Json:
    """The workload after its controller has seen this generation and counted so many pods."""
    (item,) = await server.wait_for_state(
        path,
        lambda items: (
            [(each["status"].get("observedGeneration"), each["status"].get("replicas", 0)) for each in items]
            == [(generation, replicas)]
        ),
    )
    return item


async def test_parallel_stateful_set_creates_all_its_pods_at_once(server: ContractServer) -> None:
    made = await server.a_workload("statefulsets", "s", replicas=3, podManagementPolicy="Parallel", serviceName="svc")

    pods = await server.pods_become(lambda pods: len(pods) == 3)

    assert _names(pods) == ["s-0", "s-1", "s-2"]
    first = pods[0]
    assert _owner(first) == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "s",
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    (revision,) = {pod["metadata"]["labels"]["controller-revision-hash"] for pod in pods}
    assert revision.startswith("s-")
    assert first["metadata"]["labels"] == {
        "app": "s",
        "apps.kubernetes.io/pod-index": "0",
        "controller-revision-hash": revision,
        "statefulset.kubernetes.io/pod-name": "s-0",
    }
    assert (first["metadata"]["generateName"], first["spec"]["hostname"], first["spec"]["subdomain"]) == (
        "s-",
        "s-0",
        "svc",
    )
    assert first["spec"]["containers"][0]["resources"]["requests"] == {"aliyun.com/gpu-mem": "4"}


async def test_stateful_set_without_a_service_has_no_subdomain(server: ContractServer) -> None:
    await server.a_workload("statefulsets", "s")

    (first,) = await server.pods_become(lambda pods: len(pods) == 1)

    assert "subdomain" not in first["spec"]


async def test_ordered_stateful_set_waits_for_each_pod(server: ContractServer) -> None:
    await server.a_workload("statefulsets", "s", replicas=3)

    for count in (1, 2, 3):
        pods = await server.pods_become(lambda pods, count=count: len(pods) == count)  # type: ignore[misc]
        item = await _observed(server, server.statefulsets, generation=1, replicas=count)
        assert item["status"].get("readyReplicas", 0) == count - 1
        assert names(await server.call_ok("GET", server.pods)) == [f"s-{number}" for number in range(count)]
        await server.make_ready(pods[-1])

    (item,) = await server.wait_for_state(
        server.statefulsets, lambda items: items[0]["status"].get("readyReplicas") == 3
    )
    row = await cells(server, server.path(item | {"kind": "StatefulSet"}))
    assert row["Ready"] == "3/3"


async def test_stateful_set_scales_down_from_its_highest_ordinal(server: ContractServer) -> None:
    made = await server.a_workload("statefulsets", "s", replicas=3, podManagementPolicy="Parallel")
    await server.pods_become(lambda pods: len(pods) == 3)

    await server.call_ok("PATCH", server.path(made), {"spec": {"replicas": 1}}, content_type=MERGE)

    assert _names(await server.pods_become(lambda pods: len(pods) == 1)) == ["s-0"]


async def test_a_stateful_set_starts_at_its_start_ordinal(server: ContractServer) -> None:
    await server.a_workload("statefulsets", "s", replicas=2, podManagementPolicy="Parallel", ordinals={"start": 5})

    pods = await server.pods_become(lambda pods: len(pods) == 2)

    assert _names(pods) == ["s-5", "s-6"]
    assert [pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] for pod in pods] == ["5", "6"]


async def test_deployment_creates_the_requested_pods_from_one_template(server: ContractServer) -> None:
    await server.a_workload("deployments", "d", replicas=3)

    pods = await server.pods_become(lambda pods: len(pods) == 3)

    (template,) = {each["metadata"]["labels"]["pod-template-hash"] for each in pods}
    for each in pods:
        assert each["metadata"]["labels"] == {"app": "d", "pod-template-hash": template}
        assert each["metadata"]["generateName"] == f"d-{template}-"
        assert each["metadata"]["name"].startswith(f"d-{template}-")
        # a ReplicaSet's in the real cluster
        assert _owner(each)["controller"] is True
        assert "hostname" not in each["spec"]


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_workload_is_scaled_up_and_down(server: ContractServer, kind: Workload) -> None:
    policy = {"podManagementPolicy": "Parallel"} if kind == "statefulsets" else {}
    made = await server.a_workload(kind, "a", replicas=1, **policy)
    before = await server.pods_become(lambda pods: len(pods) == 1)

    for replicas, generation in ((3, 2), (0, 3)):
        patch = {"spec": {"replicas": replicas}}
        await server.call_ok("PATCH", f"{server.path(made)}/scale", patch, content_type=MERGE)
        pods = await server.pods_become(lambda pods, replicas=replicas: len(pods) == replicas)  # type: ignore[misc]
        await _observed(server, server.workloads(kind), generation=generation, replicas=replicas)
        if pods:
            assert before[0]["metadata"]["uid"] in [pod["metadata"]["uid"] for pod in pods]


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_deleted_pod_is_recreated(server: ContractServer, kind: Workload) -> None:
    await server.a_workload(kind, "a", replicas=1)
    (first,) = await server.pods_become(lambda pods: len(pods) == 1)

    await server.delete_object(first)

    (second,) = await server.pods_become(
        lambda pods: [pod["metadata"]["uid"] != first["metadata"]["uid"] for pod in pods] == [True]
    )
    assert second["metadata"]["labels"] == first["metadata"]["labels"]


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_terminating_bound_pod_is_replaced(server: ContractServer, kind: Workload) -> None:
    """A StatefulSet waits until it is gone: there is one of each name. A Deployment does not."""
    await server.a_workload(kind, "a", replicas=1)
    (first,) = await server.pods_become(lambda pods: len(pods) == 1)
    await server.call_ok("POST", f"{server.path(first)}/binding", binding(first))

    await server.call_ok("DELETE", server.path(first))
    if kind == "deployments":
        await server.pods_become(lambda pods: len(pods) == 2)
    await server.delete_object(first)

    (second,) = await server.pods_become(
        lambda pods: [pod["metadata"]["uid"] != first["metadata"]["uid"] for pod in pods] == [True]
    )
    assert "nodeName" not in second["spec"]


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_ready_pod_is_counted(server: ContractServer, kind: Workload) -> None:
    await server.a_workload(kind, "a", replicas=1)
    (only,) = await server.pods_become(lambda pods: len(pods) == 1)

    await server.make_ready(only)

    (item,) = await server.wait_for_state(
        server.workloads(kind), lambda items: items[0]["status"].get("availableReplicas") == 1
    )
    status = item["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (1, 1, 1)
    if kind == "deployments":
        conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
        assert conditions["Available"] == ("True", "MinimumReplicasAvailable")


@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_pods_are_deleted_with_their_owner(server: ContractServer, kind: Workload, policy: str) -> None:
    made = await server.a_workload(kind, "a", replicas=1)
    await server.pods_become(lambda pods: len(pods) == 1)

    await server.call_ok("DELETE", server.path(made), {"propagationPolicy": policy})

    await server.wait_for_state(server.workloads(kind), lambda items: not items)
    assert await server.pods_become(lambda pods: not pods) == []


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_terminating_ready_pod_is_counted_only_by_a_stateful_set(server: ContractServer, kind: Workload) -> None:
    """A StatefulSet counts it until it is gone, a Deployment only the one made in its place."""
    await server.a_workload(kind, "a", replicas=1)
    (first,) = await server.pods_become(lambda pods: len(pods) == 1)
    await server.call_ok("POST", f"{server.path(first)}/binding", binding(first))
    await server.make_ready(first)
    await server.wait_for_state(server.workloads(kind), lambda items: items[0]["status"].get("readyReplicas") == 1)

    await server.call_ok("DELETE", server.path(first))

    def is_counted(items: list[Json]) -> bool:
        status = items[0]["status"]
        if kind == "deployments":
            return (status.get("replicas"), status.get("readyReplicas")) == (1, None)
        return (status.get("updatedReplicas"), status.get("replicas"), status.get("readyReplicas")) == (None, 1, 1)

    await server.wait_for_state(server.workloads(kind), is_counted)
    await server.delete_object(first)


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_a_pod_is_deleted_under_any_propagation_policy(server: ContractServer, policy: str) -> None:
    made = await server.a_pod("a")

    await server.call_ok("DELETE", server.path(made), {"propagationPolicy": policy})

    assert await server.pods_become(lambda pods: not pods) == []


async def test_orphaned_pods_stay_and_are_adopted_by_the_next_set_of_that_name(server: ContractServer) -> None:
    made = await server.a_workload("statefulsets", "s")
    (first,) = await server.pods_become(lambda pods: len(pods) == 1)

    leaving = await server.call_ok("DELETE", server.path(made), {"propagationPolicy": "Orphan"})
    await server.wait_for_state(server.statefulsets, lambda items: not items)
    (orphan,) = (await server.call_ok("GET", server.pods))["items"]
    again = await server.a_workload("statefulsets", "s")
    (adopted,) = await server.pods_become(lambda pods: "ownerReferences" in pods[0]["metadata"])

    assert leaving["metadata"]["finalizers"] == ["orphan"]
    assert "ownerReferences" not in orphan["metadata"]
    assert adopted["metadata"]["uid"] == first["metadata"]["uid"]
    assert _owner(adopted)["uid"] == again["metadata"]["uid"]
