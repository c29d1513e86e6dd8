"""The contract: lists, watches, writes, the Binding and every refusal, as the real API server answers them.

Top to bottom: lists, watches, creation, patches, deletion, the Binding, events, and what is not there.
Messages are checked by a piece that a person would look for; `code`, `reason` and `details` exactly.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.server import (
    MERGE,
    STRATEGIC,
    Json,
    Server,
    assert_refused,
    binding,
    names,
    pod,
    told,
    without_managed_fields,
)

NOT_FOUND = "the server could not find the requested resource"


# A list is one state of the cluster, however many pages it takes.


async def test_an_empty_list_has_a_version(server: Server) -> None:
    answer = await server.must("GET", server.pods)

    assert (answer["kind"], answer["apiVersion"], answer["items"]) == ("PodList", "v1", [])
    assert int(answer["metadata"]["resourceVersion"]) > 0
    assert "continue" not in answer["metadata"]


async def test_items_carry_no_kind_and_are_sorted_by_name(server: Server) -> None:
    for name in ("b", "a-b", "a"):
        await server.a_pod(name)

    answer = await server.must("GET", server.pods)

    assert names(answer) == ["a", "a-b", "b"]
    assert not [item for item in answer["items"] if "kind" in item or "apiVersion" in item]


async def test_nodes_are_listed_without_a_namespace(server: Server) -> None:
    made = await server.a_node()

    answer = await server.must("GET", "/api/v1/nodes")

    assert answer["kind"] == "NodeList"
    listed = {item["metadata"]["name"]: item for item in answer["items"]}
    assert "namespace" not in listed[made["metadata"]["name"]]["metadata"]


async def test_a_list_of_all_namespaces_holds_those_of_each(server: Server) -> None:
    await server.a_pod("mine")
    await server.must("POST", "/api/v1/namespaces/kube-system/pods", pod(server.namespace))

    answer = await server.must("GET", "/api/v1/pods")
    await server.must("DELETE", f"/api/v1/namespaces/kube-system/pods/{server.namespace}")

    places = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in answer["items"]}
    assert {(server.namespace, "mine"), ("kube-system", server.namespace)} <= places
    assert names(await server.must("GET", server.pods)) == ["mine"]


async def test_pages_show_one_state_whatever_happens_meanwhile(server: Server) -> None:
    made = {name: await server.a_pod(name) for name in ("a", "b", "c", "d", "e", "f", "g")}
    first = await server.must("GET", server.pods, limit=3)

    await server.remove(made["d"])
    await server.annotate(made["e"], changed="yes")
    await server.a_pod("c-new")
    second = await server.must("GET", server.pods, limit=3, continue_=first["metadata"]["continue"])
    third = await server.must("GET", server.pods, limit=3, continue_=second["metadata"]["continue"])

    pages = [names(page) for page in (first, second, third)]
    assert pages == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert "annotations" not in second["items"][1]["metadata"]
    # 7 - 3 = 4 and 4 - 3 = 1 are left after a page; the last one has no such field
    assert [page["metadata"].get("remainingItemCount") for page in (first, second, third)] == [4, 1, None]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert "continue" not in third["metadata"]


async def test_a_last_page_that_is_full_has_no_continuation(server: Server) -> None:
    for name in ("a", "b", "c", "d"):
        await server.a_pod(name)

    first = await server.must("GET", server.pods, limit=2)
    second = await server.must("GET", server.pods, limit=2, continue_=first["metadata"]["continue"])

    assert names(second) == ["c", "d"]
    assert "continue" not in second["metadata"]


async def test_any_version_will_do_means_the_whole_list_at_once(server: Server) -> None:
    """With resourceVersion=0 the real server answers from its cache and does not cut pages."""
    for name in ("a", "b", "c"):
        await server.a_pod(name)
    await server.must("GET", server.pods)  # has the real server's cache catch up

    answer = await server.must("GET", server.pods, limit=2, resourceVersion=0)

    assert names(answer) == ["a", "b", "c"]
    assert "continue" not in answer["metadata"]


async def test_a_continuation_of_a_forgotten_state_is_expired(server: Server) -> None:
    for name in ("a", "b"):
        await server.a_pod(name)
    page = await server.must("GET", server.pods, limit=1)
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
async def test_a_list_refuses(server: Server, query: dict[str, Json], code: int, reason: str, text: str) -> None:
    assert_refused(await server.call("GET", server.pods, **query), code, reason, text)


async def test_a_continuation_takes_no_version_beside_it(server: Server) -> None:
    for name in ("a", "b"):
        await server.a_pod(name)
    page = await server.must("GET", server.pods, limit=1)

    answer = await server.call("GET", server.pods, continue_=page["metadata"]["continue"], resourceVersion=1)

    assert_refused(answer, 400, "BadRequest", "not allowed when using continue")


# A watch tells every change after its version, once, in order.


async def test_a_watch_tells_every_change_in_order(server: Server) -> None:
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start) as watch:
        made = await server.a_pod("a")
        await server.annotate(made, n="1")
        await server.a_pod("b")
        await server.remove(made)
        events = await watch.take(5)

    # a pod's deletion is two steps: it is marked, then it is gone
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted({*versions})
    assert versions[0] > int(start)
    assert {(event["object"]["kind"], event["object"]["apiVersion"]) for event in events} == {("Pod", "v1")}


async def test_a_watch_from_a_list_loses_and_repeats_nothing(server: Server) -> None:
    await server.a_pod("listed")
    page = await server.must("GET", server.pods, limit=1)
    await asyncio.gather(*(server.a_pod(f"p-{number}") for number in range(6)))

    async with server.watch(server.pods, resourceVersion=page["metadata"]["resourceVersion"]) as watch:
        first = await watch.take(3)
    async with server.watch(
        server.pods, resourceVersion=first[-1]["object"]["metadata"]["resourceVersion"], timeoutSeconds=1
    ) as watch:
        others = await watch.rest()

    assert names(page) == ["listed"]
    assert sorted(told(first + others)) == [("ADDED", f"p-{number}") for number in range(6)]


async def test_a_watch_of_a_namespace_tells_of_no_other(server: Server) -> None:
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start) as watch:
        await server.must("POST", "/api/v1/namespaces/kube-system/pods", pod(server.namespace))
        await server.must("DELETE", f"/api/v1/namespaces/kube-system/pods/{server.namespace}")
        await server.a_pod("mine")
        event = await watch.next()

    assert told([event]) == [("ADDED", "mine")]


async def test_a_watch_of_nodes_tells_of_a_node_s_life(server: Server) -> None:
    start = (await server.must("GET", "/api/v1/nodes"))["metadata"]["resourceVersion"]

    async with server.watch("/api/v1/nodes", resourceVersion=start) as watch:
        node = await server.a_node()
        await server.annotate(node, cards="2")
        await server.must("DELETE", server.path(node))
        events = await watch.take(3)

    name = node["metadata"]["name"]
    assert told(events) == [("ADDED", name), ("MODIFIED", name), ("DELETED", name)]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": 0}], ids=["no version", "version 0"])
async def test_a_watch_from_no_version_begins_with_what_is_there(server: Server, query: dict[str, object]) -> None:
    for name in ("b", "a"):
        await server.a_pod(name)
    await server.must("GET", server.pods)  # has the real server's cache catch up

    async with server.watch(server.pods, **query) as watch:
        present = await watch.take(2)
        await server.a_pod("c")
        later = await watch.next()

    assert sorted(told(present)) == [("ADDED", "a"), ("ADDED", "b")]
    assert told([later]) == [("ADDED", "c")]


async def test_a_watch_ends_by_itself_after_its_time(server: Server) -> None:
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start, timeoutSeconds=1) as watch:
        assert await watch.rest() == []


async def test_a_bookmark_names_the_version_to_go_on_from(server: Server) -> None:
    """The last one comes two seconds before the end of the watch."""
    start = await server.version()

    query = {"resourceVersion": start, "timeoutSeconds": 4, "allowWatchBookmarks": "true"}
    async with server.watch(server.pods, **query) as watch:
        made = await server.a_pod("a")
        event, *bookmarks = await watch.rest()

    assert told([event]) == [("ADDED", "a")]
    assert {bookmark["type"] for bookmark in bookmarks} == {"BOOKMARK"}
    last = bookmarks[-1]["object"]
    assert (last["kind"], last["apiVersion"]) == ("Pod", "v1")
    assert int(last["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert "name" not in last["metadata"]
    async with server.watch(server.pods, resourceVersion=last["metadata"]["resourceVersion"]) as watch:
        await server.a_pod("b")
        assert told([await watch.next()]) == [("ADDED", "b")]


async def test_nobody_gets_bookmarks_unasked(server: Server) -> None:
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start, timeoutSeconds=3) as watch:
        await server.a_pod("a")
        events = await watch.rest()

    assert told(events) == [("ADDED", "a")]


async def test_a_watch_from_a_forgotten_version_is_expired(server: Server) -> None:
    """It is an event of a good answer, not a status of the call: a client that looks at statuses alone misses it."""
    start = await server.version()
    await server.a_pod("a")

    await server.forget()

    async with server.watch(server.pods, resourceVersion=start) as watch:
        events = await watch.rest()
    assert [event["type"] for event in events] == ["ERROR"]
    assert_refused((410, events[0]["object"]), 410, "Expired", "too old resource version")


async def test_a_watch_from_the_newest_version_goes_on_after_forgetting(server: Server) -> None:
    await server.a_pod("a")
    await server.forget()
    start = await server.version()

    async with server.watch(server.pods, resourceVersion=start) as watch:
        await server.a_pod("b")
        assert told([await watch.next()]) == [("ADDED", "b")]


# Creation: what the server sets, what it drops, what it refuses.


async def test_a_new_pod_is_pending_whatever_its_maker_says(server: Server) -> None:
    body = pod("a", uid="made-up", labels={"app": "x"}) | {"status": {"phase": "Running"}}

    status, made = await server.call("POST", server.pods, body)

    assert status == 201
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    metadata = made["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["labels"]) == ("a", server.namespace, {"app": "x"})
    assert (metadata["generation"], len(metadata["uid"])) == (1, 36)
    assert {"resourceVersion", "creationTimestamp"} <= metadata.keys()
    assert made["status"]["phase"] == "Pending"
    assert made == await server.must("GET", f"{server.pods}/a")


async def test_a_new_pod_gets_the_defaults_that_schedulers_read(server: Server) -> None:
    made = await server.a_pod()

    spec = made["spec"]
    assert (spec["schedulerName"], spec["restartPolicy"]) == ("default-scheduler", "Always")
    assert (spec["terminationGracePeriodSeconds"], spec["priority"]) == (30, 0)
    # posted as the number 4, and as a limit only
    assert spec["containers"][0]["resources"] == {
        "limits": {"aliyun.com/gpu-mem": "4"},
        "requests": {"aliyun.com/gpu-mem": "4"},
    }


async def test_a_name_may_be_left_to_the_server(server: Server) -> None:
    body = pod("", generateName="made-")
    del body["metadata"]["name"]

    made = [await server.must("POST", server.pods, body) for _ in range(2)]

    assert {item["metadata"]["generateName"] for item in made} == {"made-"}
    assert len({item["metadata"]["name"] for item in made}) == 2
    assert all(item["metadata"]["name"].removeprefix("made-").isalnum() for item in made)


async def test_a_new_node_keeps_the_status_it_comes_with(server: Server) -> None:
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
async def test_a_creation_is_refused_with(server: Server, body: Json, code: int, reason: str | None, text: str) -> None:
    await server.a_pod("taken")

    assert_refused(await server.call("POST", server.pods, body), code, reason, text)

    assert names(await server.must("GET", server.pods)) == ["taken"]


async def test_a_refusal_says_about_what(server: Server) -> None:
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
async def test_a_patch_sets_and_removes_annotations_and_labels(server: Server, form: str) -> None:
    made = await server.a_pod("a", annotations={"keep": "1", "drop": "1"}, labels={"drop": "1"})
    patch = {"metadata": {"annotations": {"drop": None, "new": "2"}, "labels": {"drop": None}}}

    status, patched = await server.call("PATCH", server.path(made), patch, content_type=form)

    assert status == 200
    assert patched["metadata"]["annotations"] == {"keep": "1", "new": "2"}
    assert "labels" not in patched["metadata"]
    assert int(patched["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert patched["spec"] == made["spec"]


async def test_a_patch_that_changes_nothing_makes_no_version(server: Server) -> None:
    made = await server.a_pod("a", annotations={"x": "1"})

    patched = await server.annotate(made, x="1")

    assert without_managed_fields(patched) == without_managed_fields(made)


async def test_status_is_patched_by_itself(server: Server) -> None:
    made = await server.a_pod("a")
    both = {"status": {"phase": "Running"}, "spec": {"nodeName": "nowhere"}, "metadata": {"annotations": {"x": "1"}}}

    patched = await server.must("PATCH", f"{server.path(made)}/status", both, content_type=MERGE)

    assert patched["status"]["phase"] == "Running"
    assert patched["metadata"]["annotations"] == {"x": "1"}  # the way a pending pod is woken
    assert patched["spec"] == made["spec"]


async def test_a_patch_of_the_object_leaves_its_status_alone(server: Server) -> None:
    node = await server.a_node(capacity={"cpu": "8"})
    patch = {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "9"}}}

    patched = await server.must("PATCH", server.path(node), patch, content_type=MERGE)

    assert patched["spec"]["unschedulable"] is True
    assert patched["status"]["capacity"] == {"cpu": "8"}


async def test_a_node_s_status_is_patched_by_itself(server: Server) -> None:
    node = await server.a_node(capacity={"cpu": "8"})
    patch = {"spec": {"unschedulable": True}, "status": {"capacity": {"aliyun.com/gpu-mem": "15"}}}

    patched = await server.must("PATCH", f"{server.path(node)}/status", patch, content_type=STRATEGIC)

    assert patched["status"]["capacity"] == {"cpu": "8", "aliyun.com/gpu-mem": "15"}
    assert "unschedulable" not in patched["spec"]


async def test_a_strategic_patch_joins_conditions_by_type(server: Server) -> None:
    path = f"{server.path(await server.a_pod('a'))}/status"
    first = {"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}}
    second = {"status": {"conditions": [{"type": "C", "status": "True"}, {"type": "A", "status": "False"}]}}

    await server.must("PATCH", path, first, content_type=STRATEGIC)
    joined = await server.must("PATCH", path, second, content_type=STRATEGIC)
    replaced = await server.must("PATCH", path, first, content_type=MERGE)

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
async def test_a_patch_is_refused_with(
    server: Server, patch: Json, form: str, code: int, reason: str, text: str
) -> None:
    made = await server.a_pod("a")

    assert_refused(await server.call("PATCH", server.path(made), patch, content_type=form), code, reason, text)

    assert await server.must("GET", server.path(made)) == made


@pytest.mark.parametrize("half", ["", "/status"])
async def test_nothing_is_patched_that_is_not_there(server: Server, half: str) -> None:
    answer = await server.call("PATCH", f"{server.pods}/nobody{half}", {}, content_type=MERGE)

    assert_refused(answer, 404, "NotFound", 'pods "nobody" not found', details={"name": "nobody", "kind": "pods"})


# Deletion: at once where nothing runs, a promise where something may.


async def test_an_unbound_pod_is_gone_at_once(server: Server) -> None:
    made = await server.a_pod("a")

    status, answer = await server.call("DELETE", server.path(made))

    assert (status, answer["kind"], answer["metadata"]["uid"]) == (200, "Pod", made["metadata"]["uid"])
    assert_refused(await server.call("GET", server.path(made)), 404, "NotFound", 'pods "a" not found')
    assert_refused(await server.call("DELETE", server.path(made)), 404, "NotFound", 'pods "a" not found')


async def test_a_bound_pod_stays_until_its_grace_is_taken_away(server: Server) -> None:
    made = await server.a_bound_pod("a")
    start = await server.version()

    leaving = await server.must("DELETE", server.path(made))
    again = await server.must("DELETE", server.path(made))
    await server.must("DELETE", server.path(made), {"gracePeriodSeconds": 0})
    async with server.watch(server.pods, resourceVersion=start) as watch:
        events = await watch.take(3)

    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    assert leaving["metadata"]["deletionTimestamp"] > made["metadata"]["creationTimestamp"]
    assert leaving["spec"]["nodeName"] == "nowhere"
    assert again["metadata"]["resourceVersion"] == leaving["metadata"]["resourceVersion"]
    assert told(events) == [("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    graces = [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events]
    assert graces == [30, 0, 0]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_is_gone_at_once(server: Server, phase: str) -> None:
    made = await server.a_bound_pod("a")
    await server.must("PATCH", f"{server.path(made)}/status", {"status": {"phase": phase}}, content_type=MERGE)

    await server.must("DELETE", server.path(made))

    assert_refused(await server.call("GET", server.path(made)), 404, "NotFound", 'pods "a" not found')


async def test_a_finalizer_holds_a_pod_until_it_is_taken_away(server: Server) -> None:
    made = await server.a_pod("a", finalizers=["example.com/hold"])
    start = await server.version()

    await server.must("DELETE", server.path(made))
    held = await server.must("GET", server.path(made))
    await server.must("PATCH", server.path(made), {"metadata": {"finalizers": None}}, content_type=MERGE)
    async with server.watch(server.pods, resourceVersion=start) as watch:
        events = await watch.take(2)

    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert told(events) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert_refused(await server.call("GET", server.path(made)), 404, "NotFound", 'pods "a" not found')


async def test_a_node_is_deleted_in_one_step_and_its_pods_stay(server: Server) -> None:
    node = await server.a_node()
    name = node["metadata"]["name"]
    bound = await server.a_bound_pod("a", node=name)

    status, answer = await server.call("DELETE", server.path(node))

    assert (status, answer["kind"], answer["status"]) == (200, "Status", "Success")
    assert answer["details"] == {"name": name, "kind": "nodes", "uid": node["metadata"]["uid"]}
    assert_refused(await server.call("GET", server.path(node)), 404, "NotFound", f'nodes "{name}" not found')
    assert (await server.must("GET", server.path(bound)))["spec"]["nodeName"] == name


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_deletion_has_preconditions(server: Server, field: str) -> None:
    made = await server.a_pod("a")

    answer = await server.call("DELETE", server.path(made), {"preconditions": {field: "1"}})
    assert_refused(answer, 409, "Conflict", "in the precondition (1)", details={"name": "a", "kind": "Pod"})

    await server.must("DELETE", server.path(made), {"preconditions": {field: made["metadata"][field]}})


# The Binding: node and annotations in one step, or a definite no.


async def test_a_binding_writes_node_and_annotations_in_one_version(server: Server) -> None:
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
        event = await watch.next()
        bound = await server.must("GET", server.path(made))

    assert status == 201
    assert answer == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert event == {"type": "MODIFIED", "object": bound}
    assert bound["spec"] == made["spec"] | {"nodeName": "nowhere"}
    assert bound["metadata"]["annotations"] == {"own": "1", "both": "2", "card": "0"}
    assert bound["metadata"]["labels"] == {"both": "2", "card": "0"}
    assert bound["metadata"]["generation"] == made["metadata"]["generation"]
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_a_binding_needs_no_node_that_exists(server: Server) -> None:
    """So whoever binds must have looked."""
    made = await server.a_pod("a")

    await server.must("POST", f"{server.path(made)}/binding", binding(made, node="no-such-node"))

    assert (await server.must("GET", server.path(made)))["spec"]["nodeName"] == "no-such-node"


async def test_a_binding_takes_the_nomination_away(server: Server) -> None:
    made = await server.a_pod("a")
    nominated = {"status": {"nominatedNodeName": "elsewhere"}}
    await server.must("PATCH", f"{server.path(made)}/status", nominated, content_type=MERGE)

    await server.must("POST", f"{server.path(made)}/binding", binding(made))

    assert "nominatedNodeName" not in (await server.must("GET", server.path(made)))["status"]


@pytest.mark.parametrize("node", ["nowhere", "elsewhere"], ids=["same node", "another node"])
async def test_a_bound_pod_is_not_bound_again(server: Server, node: str) -> None:
    made = await server.a_bound_pod("a", node="nowhere")

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made, node=node, annotations={"x": "1"}))

    text = 'pod a is already assigned to node "nowhere"'
    assert_refused(answer, 409, "Conflict", text, details={"name": "a", "kind": "pods/binding"})
    assert await server.must("GET", server.path(made)) == made


@pytest.mark.parametrize(("field", "word"), [("uid", "UID"), ("resourceVersion", "ResourceVersion")])
async def test_a_binding_has_preconditions(server: Server, field: str, word: str) -> None:
    made = await server.a_pod("a")

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made, **{field: "1"}))

    text = f"Precondition failed: {word} in precondition: 1, {word} in object meta: {made['metadata'][field]}"
    assert_refused(answer, 409, "Conflict", text, details={"name": "a", "kind": "pods"})
    assert await server.must("GET", server.path(made)) == made


async def test_a_wrong_uid_is_said_before_an_assignment(server: Server) -> None:
    made = await server.a_bound_pod("a")

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made, uid="other"))

    assert_refused(answer, 409, "Conflict", "Precondition failed: UID", details={"name": "a", "kind": "pods"})


async def test_a_pod_that_is_gone_is_not_bound(server: Server) -> None:
    made = await server.a_pod("a")
    await server.remove(made)

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made))

    assert_refused(answer, 404, "NotFound", 'pods "a" not found', details={"name": "a", "kind": "pods"})


async def test_a_pod_of_the_same_name_but_another_uid_is_not_bound(server: Server) -> None:
    old = await server.a_pod("a")
    await server.remove(old)
    new = await server.a_pod("a")

    answer = await server.call("POST", f"{server.path(new)}/binding", binding(new, uid=old["metadata"]["uid"]))

    assert_refused(answer, 409, "Conflict", "Precondition failed: UID", details={"name": "a", "kind": "pods"})


async def test_a_pod_being_deleted_is_not_bound(server: Server) -> None:
    made = await server.a_pod("a", finalizers=["example.com/hold"])
    await server.must("DELETE", server.path(made))

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made))
    await server.must("PATCH", server.path(made), {"metadata": {"finalizers": None}}, content_type=MERGE)

    text = "pod a is being deleted, cannot be assigned to a host"
    assert_refused(answer, 409, "Conflict", text, details={"name": "a", "kind": "pods/binding"})


async def test_a_leaving_pod_is_being_deleted_rather_than_assigned(server: Server) -> None:
    made = await server.a_bound_pod("a")
    await server.must("DELETE", server.path(made))

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made))

    assert_refused(answer, 409, "Conflict", "is being deleted", details={"name": "a", "kind": "pods/binding"})


async def test_a_gated_pod_is_not_bound(server: Server) -> None:
    body = pod("a")
    body["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    made = await server.must("POST", server.pods, body)

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
async def test_a_binding_is_refused_with(
    server: Server, change: dict[str, Json], code: int, reason: str | None, text: str
) -> None:
    made = await server.a_pod("a")

    answer = await server.call("POST", f"{server.path(made)}/binding", binding(made) | change)

    assert_refused(answer, code, reason, text)
    assert await server.must("GET", server.path(made)) == made


async def test_of_many_bindings_at_once_one_wins(server: Server) -> None:
    made = await server.a_pod("a")
    path = f"{server.path(made)}/binding"

    answers = await asyncio.gather(
        *(server.call("POST", path, binding(made, node=f"n-{n}", annotations={"card": str(n)})) for n in range(8))
    )

    assert sorted(status for status, _ in answers) == [201] + [409] * 7
    winner = next(number for number, (status, _) in enumerate(answers) if status == 201)
    bound = await server.must("GET", server.path(made))
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


async def test_an_event_is_written_and_counted_up(server: Server) -> None:
    body = _event("a.1", kind="Pod", namespace=server.namespace, name="a", uid="1")

    status, made = await server.call("POST", server.events, body)
    path = f"{server.events}/a.1"
    patched = await server.must("PATCH", path, {"count": 2, "message": "card 1"}, content_type=STRATEGIC)

    assert (status, made["kind"]) == (201, "Event")
    assert {key: made[key] for key in body if key != "metadata"} == {
        key: body[key] for key in body if key != "metadata"
    }
    assert (patched["count"], patched["message"], patched["reason"]) == (2, "card 1", "GPUMemoryBound")
    assert patched == await server.must("GET", path)
    assert names(await server.must("GET", server.events)) == ["a.1"]


@pytest.mark.parametrize(
    "involved", [{"kind": "Pod", "namespace": "kube-system"}, {"kind": "Node"}], ids=["another namespace", "a node"]
)
async def test_an_event_lives_in_the_namespace_of_what_it_is_about(server: Server, involved: dict[str, str]) -> None:
    body = _event("a.1", name="a", **involved)

    answer = await server.call("POST", server.events, body)

    assert_refused(answer, 422, "Invalid", "does not match event.namespace", details={"name": "a.1", "kind": "Event"})


async def test_an_event_about_a_node_lives_in_default(server: Server) -> None:
    node = await server.a_node()
    name = node["metadata"]["name"]

    made = await server.must("POST", "/api/v1/namespaces/default/events", _event(name, kind="Node", name=name))
    await server.must("DELETE", f"/api/v1/namespaces/default/events/{name}")

    assert made["metadata"]["namespace"] == "default"


async def test_an_event_is_not_written_twice(server: Server) -> None:
    body = _event("a.1", kind="Pod", namespace=server.namespace, name="a")
    await server.must("POST", server.events, body)

    answer = await server.call("POST", server.events, body)

    assert_refused(answer, 409, "AlreadyExists", "", details={"name": "a.1", "kind": "events"})


# What is not there.


@pytest.mark.parametrize("path", ["/api/v1/nonsense", "/api/v1/namespaces/default/nonsense/a", "/apis/none/v1/all"])
async def test_an_unknown_resource_is_not_found(server: Server, path: str) -> None:
    status, body = await server.call("GET", path)

    # for a group it does not know the real server answers in plain text
    assert status == 404
    if path.startswith("/api/"):
        assert_refused((status, body), 404, "NotFound", NOT_FOUND, details={})


async def test_pods_are_not_created_without_a_namespace_or_over_one_another(server: Server) -> None:
    made = await server.a_pod("a")

    for path in ("/api/v1/pods", server.path(made)):
        answer = await server.call("POST", path, pod("b"))
        assert_refused(answer, 405, "MethodNotAllowed", "does not allow this method", details={})


@pytest.mark.parametrize("probe", ["/readyz", "/healthz", "/livez"])
async def test_probes_answer_ok(server: Server, probe: str) -> None:
    assert await server.call("GET", probe) == (200, "ok")


async def test_the_version_is_that_of_a_kubernetes(server: Server) -> None:
    answer = await server.must("GET", "/version")

    assert (answer["major"], answer["minor"]) == ("1", "36")
    assert answer["gitVersion"].startswith("v1.36.")


async def test_a_body_may_be_three_mebibytes(server: Server) -> None:
    body = pod("a", annotations={"x": "x" * 3 * 1024 * 1024})

    answer = await server.call("POST", server.pods, body)

    assert_refused(answer, 413, "RequestEntityTooLarge", "limit is 3145728", details={})


async def test_an_unknown_path_is_plain_text(server: Server) -> None:
    assert await server.call("GET", "/nonsense") == (404, "404 page not found\n")
