"""Profiles: which policy ranks nodes for which pods. They only rank; `vrampack.cards.rules` has what holds for all pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from vrampack.cards.pod import Pod
from vrampack.cards.request import PodRequest, ProfileChoice
from vrampack.cards.rules import NO_RULES, PlacementRules, PodSelector
from vrampack.cards.tuned_policy import TunedPolicy


@dataclass(frozen=True, slots=True)
class Profile:
    """A named choice of the operator."""

    name: str
    policy: TunedPolicy
    users: PodSelector
    schedulers: tuple[str, ...] = ()
    """Names or patterns of `spec.schedulerName`; empty: any."""
    by_annotation: bool = False
    """Whether a pod may choose it by name."""

    def matches_pod(self, pod: Pod) -> bool:
        is_of_scheduler = not self.schedulers or any(fnmatchcase(pod.scheduler_name, each) for each in self.schedulers)
        return is_of_scheduler and self.users.matches_pod(pod)

    def to_choice(self) -> ProfileChoice:
        return ProfileChoice(self.name, self.policy)


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """What the configuration says about single pods."""

    rules: PlacementRules = NO_RULES
    profiles: tuple[Profile, ...] = ()

    def list_label_keys(self) -> frozenset[str]:
        """The keys of pod labels that decide anything."""
        keys = {key for profile in self.profiles for key, _ in profile.users.labels}
        return self.rules.list_label_keys() | keys

    def list_namespace_label_keys(self) -> frozenset[str]:
        """The keys of namespace labels that decide anything."""
        selectors = self.rules.list_selectors() + [profile.users for profile in self.profiles]
        return frozenset(key for selector in selectors for key, _ in selector.namespace_labels)

    def resolve_pod(self, pod: Pod) -> Pod:
        """The pod with the rules and the profile that are in force for it."""
        if pod.request is None:
            return pod
        pod_request = self.resolve_request(pod, pod.request)
        return pod if pod_request is pod.request else replace(pod, request=pod_request)

    def resolve_request(self, pod: Pod, pod_request: PodRequest) -> PodRequest:
        """The same for the request of this pod alone."""
        settled = self.rules.constrain_request(pod, pod_request)
        profile = choose_profile(self.profiles, pod, pod_request.policy) if self.profiles else None
        return settled if settled.profile == profile else replace(settled, profile=profile)


def choose_profile(profiles: Iterable[Profile], pod: Pod, wish: str | None) -> ProfileChoice | None:
    """The profile that the pod's annotation names, if pods may; else the first that matches. None: the cluster's default."""
    matching = None
    for profile in profiles:
        if profile.by_annotation and profile.name == wish:
            return profile.to_choice()
        if matching is None and profile.matches_pod(pod):
            matching = profile
    return None if matching is None else matching.to_choice()


NO_SETTINGS = PlacementSettings()
