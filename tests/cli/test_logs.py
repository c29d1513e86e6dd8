"""What a line of the log looks like, for people and for collectors."""

from __future__ import annotations

import json
import logging

from vrampack.cli.logging_setup import JsonFormatter


def a_record(message: str, *values: object, failed: bool = False) -> logging.LogRecord:
    error = (ValueError, ValueError("two\nlines"), None) if failed else None
    record = logging.LogRecord("vrampack.agent.app", logging.WARNING, __file__, 1, message, values, error)
    record.created = 0.25
    return record


def test_log_line_is_one_json_object() -> None:
    text = JsonFormatter().format(a_record('bound pod=%s text="%s"', "ml/train-0", "a\nb"))
    assert "\n" not in text
    assert json.loads(text) == {
        "ts": "1970-01-01T00:00:00.250+00:00",
        "level": "warning",
        "logger": "vrampack.agent.app",
        "msg": 'bound pod=ml/train-0 text="a\nb"',
    }


def test_traceback_stays_in_its_log_line() -> None:
    text = JsonFormatter().format(a_record("failed", failed=True))
    assert "\n" not in text
    error = json.loads(text)["error"]
    assert error == "ValueError: two\nlines"
