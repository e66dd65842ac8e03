"""Crops, mirrors, shifts and enlargements, as the experiments did them that are run again."""

from __future__ import annotations

import numpy as np
import pytest

from trainscale.worker.data import augment

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
ALL = np.arange(len(IMAGES))


def made(size: int, chance: np.ndarray | None, chosen: np.ndarray = ALL, images: np.ndarray = IMAGES) -> np.ndarray:
    places = np.full((len(chosen), images.shape[1], size, size), 77, np.uint8)
    augment.write_images(places, images, chosen, chance)
    return places


def chances(*triples: tuple[float, float, float]) -> np.ndarray:
    return np.asarray(triples, np.float32)


def test_what_is_drawn_depends_on_seed_epoch_and_image_alone() -> None:
    draws = augment.draw_numbers(100, 7, 2, 3)
    assert draws.shape == (100, 3)
    assert 0 <= draws.min() < draws.max() < 1
    assert np.array_equal(draws, augment.draw_numbers(100, 7, 2, 3))
    assert not np.array_equal(draws, augment.draw_numbers(100, 7, 3, 3))
    assert not np.array_equal(draws, augment.draw_numbers(100, 8, 2, 3))
    chosen = np.array([31, 4, 15])
    assert np.array_equal(made(28, draws[ALL])[chosen], made(28, draws[chosen], chosen))


def test_a_crop_is_a_window_anywhere_every_other_one_mirrored() -> None:
    corners = chances((0, 0, 0.9), (0.999, 0.999, 0.9), (0, 0.999, 0.1), (0.5, 0.25, 0.5))
    images = made(28, corners, ALL[:4])
    assert np.array_equal(images[0], IMAGES[0, :, :28, :28])
    assert np.array_equal(images[1], IMAGES[1, :, 4:, 4:])
    assert np.array_equal(images[2], IMAGES[2, :, :28, 4:][:, :, ::-1])
    assert np.array_equal(images[3], IMAGES[3, :, 2:30, 1:29])


def test_all_windows_and_both_mirrors_come_about_equally_often() -> None:
    draws = augment.draw_numbers(5000, 1, 0, 3)
    counts = np.bincount((draws[:, 0] * 5).astype(int), minlength=5)
    assert counts.min() > 900
    assert 2300 < (draws[:, 2] < 0.5).sum() < 2700


def test_a_shift_moves_by_up_to_a_tenth_and_repeats_the_edge() -> None:
    images = made(32, chances((0.5, 0.5, 0.9), (0, 0.5, 0.9), (0.999, 0.999, 0.1)), ALL[:3])
    assert np.array_equal(images[0], IMAGES[0])
    assert np.array_equal(images[1, :, 3:], IMAGES[1, :, :29])
    assert (images[1, :, :3] == IMAGES[1, :, :1]).all()
    back = images[2, :, :, ::-1]
    assert np.array_equal(back[:, :29, :29], IMAGES[2, :, 3:, 3:])
    assert (back[:, 29:, :29] == IMAGES[2, :, 31:, 3:]).all()
    assert (back[:, :29, 29:] == IMAGES[2, :, 3:, 31:]).all()


@pytest.mark.parametrize("chance", [None, np.zeros((40, 3), np.float32)], ids=["validation", "training"])
def test_an_enlargement_repeats_pixels_and_leaves_black_around_whatever_was_there_before(
    chance: np.ndarray | None,
) -> None:
    images = made(299, chance)
    assert np.array_equal(images[:, :, 5:293, 5:293], IMAGES.repeat(9, 2).repeat(9, 3))
    images[:, :, 5:293, 5:293] = 0
    assert not images.any()


def test_validation_takes_the_middle_or_all_and_nothing_by_chance() -> None:
    chosen = np.array([3, 1])
    assert np.array_equal(made(28, None, chosen), IMAGES[chosen, :, 2:30, 2:30])
    assert np.array_equal(made(32, None, chosen), IMAGES[chosen])


def test_digits_have_one_channel() -> None:
    digits = IMAGES[:, :1, :28, :28]
    assert np.array_equal(made(28, None, images=digits), digits)
    assert made(32, None, images=digits)[:, :, 2:30, 2:30].tolist() == digits.tolist()
