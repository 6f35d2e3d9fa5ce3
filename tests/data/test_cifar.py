import numpy as np
import pytest
import torch

from lsdl_lib import data

RECORDS = 4
NAMES = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]


def label_of(file, record):
    return (3 * file + record) % 10


def pixel(file, record, channel, row, column):
    return (101 * file + 53 * record + 29 * channel + 7 * row + column) % 256


@pytest.fixture
def folder(tmp_path):
    """Six files in CIFAR-10's layout, written byte by byte; values tell all positions apart."""
    for file, name in enumerate(NAMES):
        content = bytearray()
        for record in range(RECORDS):
            content.append(label_of(file, record))
            content += bytes(
                pixel(file, record, channel, row, column)
                for channel in range(3)
                for row in range(32)
                for column in range(32)
            )
        (tmp_path / name).write_bytes(content)
    return tmp_path


def image(file, record):
    channel, row, column = np.ogrid[:3, :32, :32]
    return torch.from_numpy(pixel(file, record, channel, row, column).astype(np.uint8))


def read(folder, **options):
    return data.cifar10(folder, **{"validation": 5, "records_per_file": RECORDS, **options})


def test_layout(folder):
    cifar = read(folder, validation=0)
    assert cifar.train_x.dtype == torch.uint8
    assert (len(cifar.train_x), len(cifar.val_x), len(cifar.test_x)) == (20, 0, 4)
    for place in range(20):
        file, record = divmod(place, RECORDS)
        assert torch.equal(cifar.train_x[place], image(file, record))
        assert cifar.train_y[place] == label_of(file, record)
    for record in range(RECORDS):
        assert torch.equal(cifar.test_x[record], image(5, record))
        assert cifar.test_y[record] == label_of(5, record)


def test_validation_is_taken_from_training(folder):
    cifar, whole = read(folder), read(folder, validation=0)
    assert (len(cifar.train_x), len(cifar.val_x)) == (15, 5)
    both = torch.cat([cifar.train_x, cifar.val_x]).flatten(1).tolist()
    assert sorted(both) == sorted(whole.train_x.flatten(1).tolist())
    assert torch.equal(cifar.val_x, read(folder).val_x)
    assert not torch.equal(cifar.val_x, read(folder, seed=1).val_x)
    assert torch.equal(cifar.test_x, whole.test_x)


def test_folder_inside_the_folder(folder, tmp_path):
    inner = tmp_path / "cifar-10-batches-bin"
    inner.mkdir()
    for name in NAMES:
        (folder / name).rename(inner / name)
    assert len(read(tmp_path).test_x) == RECORDS


def test_standardized_bytes(folder):
    scaled = read(folder).standardized()
    assert scaled.train_x.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-5)


def test_no_such_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere is not a folder"):
        read(tmp_path / "nowhere")


def test_missing_file_is_named(folder):
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no data_batch_3\.bin\. Unpack") as error:
        read(folder)
    assert str(folder) in str(error.value)


def test_python_version_is_recognized(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"a pickle")
    with pytest.raises(FileNotFoundError, match="Python version: take the binary one"):
        read(tmp_path)


@pytest.mark.parametrize("change", [-1, 1, -3073, 3073])
def test_wrong_size(folder, change):
    path = folder / "data_batch_2.bin"
    path.write_bytes((path.read_bytes() + bytes(3073))[: RECORDS * 3073 + change])
    with pytest.raises(ValueError, match=f"data_batch_2.bin has {RECORDS * 3073 + change} bytes"):
        read(folder)


def test_label_above_nine(folder):
    path = folder / "test_batch.bin"
    content = bytearray(path.read_bytes())
    content[2 * 3073] = 10
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"test_batch\.bin: record 2 has label 10"):
        read(folder)


@pytest.mark.parametrize("validation", [-1, 20])
def test_validation_that_does_not_fit(folder, validation):
    with pytest.raises(ValueError, match=f"validation={validation} must be from 0 to 19"):
        read(folder, validation=validation)
