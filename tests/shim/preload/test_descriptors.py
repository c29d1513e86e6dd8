"""Which descriptors are the driver's, and which processes have them: duplicates, closes, forks, new programs."""

from __future__ import annotations

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.preload.building import PreloadTestPrograms, build_script
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.limit_cases import REFUSED
from tests.support.polling import wait_until


def steps(container: PreloadedContainer, extra: PreloadTestPrograms, text: str) -> list[str]:
    """What the program printed; it must exit with 0 and print nothing on standard error."""
    ended = container.run(extra.steps, *build_script(text))
    assert (ended.code, ended.err) == (0, "")
    return ended.lines


def test_closing_the_control_file_gives_everything_back(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    said = steps(container, extra, "open take 3000 take 1000 close open take 4200")
    assert said == ["allocated 3000 MiB", "allocated 1000 MiB", "closed: 0", "allocated 4200 MiB"]


def test_memory_stays_counted_until_the_last_duplicate_is_closed(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent, driver: FakeDriver
) -> None:
    """The driver keeps the memory, so it stays counted: for a duplicate that was used, and for one that was not yet."""
    said = steps(container, extra, "open take 3000 dup take 300 close take 1002 close open take 4200")
    used = ["allocated 3000 MiB", "allocated 300 MiB", "closed: 0", REFUSED, "closed: 0", "allocated 4200 MiB"]
    assert said == used
    said = steps(container, extra, "open take 3000 dup close take 1302 close open take 4200")
    assert said == ["allocated 3000 MiB", "closed: 0", REFUSED, "closed: 0", "allocated 4200 MiB"]
    assert driver.state().cards[0].peak <= 4301 * MIB


def test_a_descriptor_number_reused_for_another_file_is_noticed(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    """dup2 closes the control file without close(2); the next file on that number shows it."""
    assert steps(container, extra, "open take 3000 overwrite close open take 4200")[-1] == "allocated 4200 MiB"


def test_a_program_that_closes_every_descriptor_is_still_limited(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    """The library's own socket is among them; for the program it was not open."""
    said = steps(container, extra, "open take 3000 sweep take 1302 take 1300")
    assert said == ["allocated 3000 MiB", REFUSED, "allocated 1300 MiB"]
    assert len({question.sequence for question in agent.asked}) == len(agent.asked), "one connection all along"


def test_a_forked_child_has_its_own_connection_and_the_same_limit(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    said = steps(container, extra, "open take 3000 fork open take 1302 take 1300 take 1300")
    assert said == ["allocated 3000 MiB", REFUSED, "allocated 1300 MiB", "allocated 1300 MiB"]


def test_memory_inherited_by_a_forked_child_is_counted_while_it_lives(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent, driver: FakeDriver
) -> None:
    """It has the control file too, and so the driver keeps the memory after the parent was killed."""
    with container.running(extra.steps, *build_script("open take 3000 leave wait kill")) as program:
        program.wait_for_line("staying")
        program.process.kill()
        program.process.wait()
        assert driver.state().cards[0].used == 3000 * MIB
        assert agent.used_bytes == 3000 * MIB
        assert container.run(extra.steps, "open", "take", "1302").lines == [REFUSED]
    wait_until(lambda: agent.used_bytes == 0, what="the end of the child, and of the memory")


def test_a_child_of_vfork_does_not_change_its_parents_state(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    said = steps(container, extra, "open take 3000 vfork take 1302 take 1300")
    assert said == ["allocated 3000 MiB", REFUSED, "allocated 1300 MiB"]


def test_a_program_after_exec_starts_without_a_charge(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    said = steps(container, extra, "open take 4000 exec open take 4200")
    assert said == ["allocated 4000 MiB", "allocated 4200 MiB"]


def test_threads_that_race_stay_within_the_limit(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent, driver: FakeDriver
) -> None:
    """Two pieces of 1500 MiB fit at once, of five."""
    assert steps(container, extra, "open race 5 take 4300") == ["raced: some were given", "allocated 4300 MiB"]
    assert driver.state().cards[0].peak <= 4301 * MIB
    wait_until(lambda: agent.used_bytes == 0)


def test_the_library_works_where_seccomp_forbids_its_helper_calls(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    """The library then copies directly, and recognises duplicates by the file they refer to."""
    ended = container.run(
        extra.forbid, str(extra.steps), *build_script("open take 3000 dup close take 1302 close open take 4200")
    )
    assert ended.lines == ["allocated 3000 MiB", "closed: 0", REFUSED, "closed: 0", "allocated 4200 MiB"]
