"""Breaks of the policies, of filter, prioritize and preempt, and of what is remembered between them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

POLICIES = "tests/policies/test_policies.py"
ENGINE = "tests/policies/test_engine.py"
ADJUSTED = "tests/policies/test_adjusted_policy.py"
RECORDED = "tests/wire/test_recorded.py"
PROMISES = "tests/extender/test_soft_reservations.py"
NOES = "tests/extender/test_rejection_cache.py"
DECIDING = "tests/extender/test_decide_setting.py"
VICTIMS = "tests/extender/test_victims.py"
PREEMPTION = "tests/extender/test_preemption.py"

VERBS: Mapping[str, Mutation] = {
    "binpack takes the emptiest card": Mutation(
        "policies/open_cards.py",
        "return card.units - card.used_units",
        "return card.used_units - card.units",
        f"{POLICIES}::test_each_policy_chooses_its_cards_within_a_node[binpack: the fuller card]",
    ),
    "binpack takes the node with the emptiest card": Mutation(
        "policies/binpack.py",
        "yield Rating(-sum([card.units - card.used_units for card in tightest]), tightest)",
        "yield Rating(sum([card.units - card.used_units for card in tightest]), tightest)",
        f"{POLICIES}::test_nodes_are_ranked[binpack: least left on the card]",
    ),
    "spread looks at units, not at shares": Mutation(
        "policies/spread.py",
        "return 1.0 if request.whole else (card.used_units + request.units) / card.units",
        "return 1.0 if request.whole else -card.free_units",
        f"{POLICIES}::test_each_policy_chooses_its_cards_within_a_node[spread: mixed cards]",
    ),
    "equal nodes are in the order in which they were asked": Mutation(
        "policies/evaluate.py",
        "return [name for _, name in sorted(fitting)]",
        "return [name for _, name in sorted(fitting, key=lambda each: each[0])]",
        f"{POLICIES}::test_equal_nodes_are_ordered_by_name",
    ),
    "of equal nodes the last by name is the best": Mutation(
        "policies/engine/node_ranking.py",
        "return nsmallest(count, firsts)",
        "return sorted(firsts)[: -count - 1 : -1]",
        f"{RECORDED}::test_prioritize_agrees_with_the_oracle",
    ),
    "a pod has any policy it wishes": Mutation(
        "policies/tuning.py",
        "wished = None if wish is None else self._allowed_policies.get(wish)",
        "wished = None if wish is None else TunedPolicy(wish)",
        f"{ENGINE}::test_a_pods_policy_is_used_if_allowed[nothing is allowed]",
    ),
    "what fits is answered in the order of names": Mutation(
        "policies/engine/filter_outcome.py",
        "return FilterOutcome(passed, unschedulable, unresolvable)",
        "return FilterOutcome(sorted(passed), unschedulable, unresolvable)",
        f"{ENGINE}::test_names_that_fit_are_answered_in_the_order_asked",
    ),
    "an unknown node is left out of the answer": Mutation(
        "policies/engine/filter_outcome.py",
        "NOT_SEEN = FitClass((UnfitReason.NOT_SEEN,), (-1,))",
        "NOT_SEEN = FitClass((UnfitReason.NOT_SEEN,), (maxsize,))",
        f"{ENGINE}::test_a_node_that_was_removed_and_added_is_evaluated_again",
    ),
    "two profiles of one policy share a ranking": Mutation(
        "policies/engine/engine.py",
        "return RankingKey(request, name, outlook.request_host)",
        "return RankingKey(request, TunedPolicy(name.name), outlook.request_host)",
        f"{ADJUSTED}::test_two_profiles_of_one_policy_rank_each_by_its_own_weights",
    ),
    "a card past its bound loses nothing by it": Mutation(
        "policies/adjusted_policy.py",
        "yield rating if near is not None else rating._replace(score=rating.score - OVER_BOUND)",
        "yield rating",
        f"{ADJUSTED}::test_cards_past_the_bound_rank_last_in_the_order_of_the_policy",
    ),
    "a tenant finds on its own nodes what a new tenant finds": Mutation(
        "policies/engine/fit_index.py",
        "indexes.append(self._find_part(_Part(kind, self._cluster), request.rules.tenant))",
        "pass",
        "tests/extender/test_rules.py::test_a_relabelled_pod_belongs_to_another_tenant",
    ),
    "a class is good for ever": Mutation(
        "policies/engine/fit_index.py",
        "self.classes[name] = self._fit_classes.find_class(shape)",
        "self.classes.setdefault(name, self._fit_classes.find_class(shape))",
        f"{ENGINE}::test_a_changed_node_is_evaluated_again",
    ),
    "what one pod finds is not even told to that pod": Mutation(
        "policies/engine/engine.py",
        "special[name] = _find_obstacle(self._ledger.get_node_for_pod(name, uid), request)",
        "pass",
        f"{ENGINE}::test_an_answer_with_a_reservation_is_not_shared",
    ),
    "full and never are told the wrong way round": Mutation(
        "extender/scheduling/verbs.py",
        "node_names=outcome.passed, failed=outcome.unschedulable, unresolvable=outcome.unresolvable",
        "node_names=outcome.passed, failed=outcome.unresolvable, unresolvable=outcome.unschedulable",
        f"{RECORDED}::test_filter_agrees_with_the_oracle",
    ),
    "the second best node scores nearly as much as the best": Mutation(
        "extender/scheduling/verbs.py",
        "SCORES = (MAX_SCORE, 5, 4, 3, 2, 1)",
        "SCORES = (MAX_SCORE, 9, 8, 7, 6, 5)",
        f"{RECORDED}::test_prioritize_agrees_with_the_oracle",
    ),
    "the best node scores least": Mutation(
        "extender/scheduling/verbs.py",
        "body = encode_json([HostPriority(*each) for each in zip(best, SCORES, strict=False)])",
        "body = encode_json([HostPriority(*each) for each in zip(reversed(best), SCORES, strict=False)])",
        f"{RECORDED}::test_prioritize_agrees_with_the_oracle",
    ),
    "a running pod that is resized is told to go": Mutation(
        "extender/scheduling/verbs.py",
        "outcome = outcome.with_node_passed(pod.node_name, names)",
        "pass",
        "tests/extender/test_routes.py::test_a_running_pod_that_is_resized_in_place_passes_where_it_runs",
    ),
    "filter decides for a pod that prefers nodes by something else": Mutation(
        "extender/scheduling/verbs.py",
        'return decide == "filter" or (decide == "auto" and not scheduling_request.prefers_nodes)',
        'return decide in ("filter", "auto")',
        f"{DECIDING}::test_auto_lets_the_scheduler_score_where_a_pod_prefers_nodes",
    ),
    "a promise to one pod refuses another": Mutation(
        "policies/engine/engine.py",
        "if isinstance(beside, ScoredCards):",
        "if beside is not None:",
        f"{PROMISES}::test_a_soft_reservation_rejects_no_pod",
    ),
    "a promise never ends": Mutation(
        "extender/state/soft_reservations.py",
        "if self.get_age_seconds(oldest) < SOFT_RESERVATION_SECONDS:",
        "if oldest:",
        f"{PROMISES}::test_a_soft_reservation_expires[2 seconds]",
    ),
    "a promise on one node is kept on another": Mutation(
        "policies/engine/engine.py",
        "if own is not None and own.node_name == name:",
        "if own is not None:",
        f"{PROMISES}::test_a_soft_reservation_on_another_node_is_ignored",
    ),
    "who was promised two cards is given the one that is left": Mutation(
        "policies/engine/engine.py",
        "if len(cards) == len(own.cards) == pod_request.card_request.count:",
        "if cards:",
        f"{PROMISES}::test_a_partly_taken_soft_reservation_is_ignored",
    ),
    "a no outlives the room that came": Mutation(
        "extender/scheduling/rejection_cache.py",
        "is_current = generation == self.generation",
        "is_current = True",
        f"{NOES}::test_gained_room_ends_a_cached_rejection",
    ),
    "a no that is kept says never for what may come": Mutation(
        "extender/state/ledger.py",
        "if has_other_cards and has_changed_cards(before, node):",
        "if False:",
        f"{NOES}::test_a_node_is_no_longer_unresolvable_once_its_reason_is_resolvable",
    ),
    "cards kept for nominated pods are free for all": Mutation(
        "policies/engine/fit_index.py",
        "indexes.append(self._find_part(_Part(kind, kept)))",
        "pass",
        f"{ENGINE}::test_pods_with_the_same_floor_see_the_same_cards_kept",
    ),
    "cards that no node has make a request of its own": Mutation(
        "policies/engine/hardware_index.py",
        "uuids = _select_known(uuids, self._names_by_uuid)",
        "pass",
        f"{ENGINE}::test_indistinguishable_requests_share_an_answer[cards that are nowhere]",
    ),
    "a no is for any nodes": Mutation(
        "extender/scheduling/rejection_cache.py",
        "return is_current and len(names) == len(self.names) and self.names.issuperset(names)",
        "return is_current",
        f"{NOES}::test_a_filter_of_other_node_names_answers_for_those_names",
    ),
    "a node on which the pod failed is named first": Mutation(
        "policies/engine/engine.py",
        "ranked.append((2 if name in avoided else tier, -score, name))",
        "ranked.append((-1 if name in avoided else tier, -score, name))",
        f"{DECIDING}::test_a_node_chosen_but_not_bound_comes_last_for_that_pod",
    ),
    "a node on which the pod failed once is avoided for ever": Mutation(
        "extender/scheduling/node_backoff.py",
        "return frozenset(name for name, each in backoff.avoided_nodes.items() if now < each.until)",
        "return frozenset(name for name, each in backoff.avoided_nodes.items() if now)",
        f"{DECIDING}::test_a_failed_node_recovers_its_rank_after_a_while",
    ),
    "a pod of equal priority is evicted": Mutation(
        "extender/preemption/victims.py",
        'if hold.state == "bound" and hold.pod.priority < priority and _list_missing_cards(hold, missing)',
        'if hold.state == "bound" and hold.pod.priority <= priority and _list_missing_cards(hold, missing)',
        f"{VICTIMS}::test_victims_match_the_table[never an equal priority]",
    ),
    "a pod is evicted from a place that it may never get": Mutation(
        "extender/preemption/victims.py",
        'if hold.state == "bound" and hold.pod.priority < priority and _list_missing_cards(hold, missing)',
        "if hold.pod.priority < priority and _list_missing_cards(hold, missing)",
        f"{VICTIMS}::test_victims_match_the_table[reserved places stay]",
    ),
    "a proposed victim of equal priority is let pass": Mutation(
        "extender/preemption/preempt.py",
        "if any(victim.priority >= pod.priority for victim in known):",
        "if any(victim.priority > pod.priority for victim in known):",
        f"{PREEMPTION}::test_preempt_keeps_completes_or_drops_each_proposal[a proposed one is not lower]",
    ),
    "a pod that may not preempt does": Mutation(
        "extender/preemption/preempt.py",
        "names: Collection[str] = found if proposal.may_preempt else ()",
        "names: Collection[str] = found",
        f"{PREEMPTION}::test_a_pod_that_may_not_preempt_is_given_no_node",
    ),
    "preempt answers by what a node was before others had their turn": Mutation(
        "extender/preemption/preempt.py",
        "names = self._list_changed_nodes(generation, found)",
        "names = ()",
        f"{PREEMPTION}::test_a_node_that_changes_during_the_call_is_evaluated_again",
    ),
    "two calls of preempt are answered at once": Mutation(
        "extender/preemption/preempt.py",
        "async with self._one_call:",
        "if self._one_call:",
        f"{PREEMPTION}::test_two_pods_that_preempt_at_once_are_not_given_one_card",
    ),
    "what a pod asks and its priority are believed from the call": Mutation(
        "extender/preemption/preempt.py",
        "pod = self._ledger.get_pod(proposal.pod.uid) or proposed_pod",
        "pod = proposed_pod",
        f"{PREEMPTION}::test_request_and_priority_come_from_the_api_server",
    ),
    "a verdict worked out in steps is not kept": Mutation(
        "policies/engine/following.py",
        "self._put_node(name)",
        "self._put_node(name) if limit > 100 else None",
        "tests/extender/test_ruled_preparation.py::test_changes_between_two_steps_are_noticed",
    ),
    "a state says nothing of what rules know": Mutation(
        "vrampack/cards/shape.py",
        "return card.model, card.units, card.used_units, card.healthy and not card.cordoned, marks",
        "return card.model, card.units, card.used_units, card.healthy and not card.cordoned, ()",
        "tests/policies/test_node_rankings.py::test_nodes_that_differ_only_under_rules_are_in_different_states[tenants]",
    ),
    "a shadow judges what has changed": Mutation(
        "extender/scheduling/shadow_judge.py",
        "if self._nominator.generation != decision.ledger_generation:",
        "if False:",
        "tests/extender/test_shadow_judge.py::test_a_decision_whose_nodes_changed_is_not_judged",
    ),
    "a pod of a namespace that is not seen is let past": Mutation(
        "extender/state/namespaces.py",
        "if not self._reads_namespaces or namespace in self._namespaces:",
        "if True:",
        "tests/extender/test_namespaces.py::test_verbs_are_not_ready_for_pods_of_unseen_namespaces",
    ),
    "a pod is ranked by whatever the file says at each call": Mutation(
        "extender/scheduling/pod_generations.py",
        "if pin is None or pin.generation == self.current:",
        "if True:",
        "tests/extender/test_profiles.py::test_a_pod_is_ranked_by_the_policy_generation_that_filtered_it",
    ),
    "a waiting pod keeps the rules that it was read under": Mutation(
        "extender/state/ledger.py",
        "settled = self._pods.settle_unbound(in_force, settled_pods)",
        "settled: list[SettledPod] = []",
        "tests/extender/test_rules.py::test_a_waiting_pod_is_bound_by_the_current_rules",
    ),
    "an API failure is held against the node": Mutation(
        "extender/scheduling/verbs.py",
        "elif outcome.result in API_FAILURES:",
        "elif False:",
        "tests/extender/test_decide_setting.py::test_an_api_server_failure_does_not_count_against_the_node",
    ),
    "a webhook's no says nothing against the node": Mutation(
        "extender/scheduling/node_backoff.py",
        "is_repeated = is_same and (is_once or self._succeeded_at > backoff.excused_at)",
        "is_repeated = is_same and self._succeeded_at > backoff.excused_at",
        "tests/extender/test_decide_setting.py::test_a_binding_forbidden_twice_counts_against_the_node",
    ),
    "a fault leaves the caches as they are": Mutation(
        "extender/scheduling/cache_rebuild.py",
        "cache.forget_all()",
        "pass",
        "tests/extender/test_cache_rebuild.py::test_no_fault_in_a_cache_outlives_its_call[find_equivalence_class]",
    ),
    "a webhook's no is taken for lost rights": Mutation(
        "extender/state/denied_calls.py",
        "if not is_allowed:",
        "if True:",
        "tests/extender/test_denied_calls.py::test_an_account_that_lost_its_rights_is_unready_until_it_has_them_again",
    ),
    "the node that was named is to blame": Mutation(
        "extender/scheduling/verbs.py",
        "self._node_backoff.record_target(args.pod_uid, args.node)",
        "pass",
        "tests/extender/test_decide_setting.py::test_a_failed_bind_counts_against_the_node_it_was_called_for",
    ),
}
