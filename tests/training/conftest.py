"""Fixtures of the training tests."""

import pytest


@pytest.fixture
def book(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("the cat sat on the mat and the dog sat on the log. " * 200)
    return file
