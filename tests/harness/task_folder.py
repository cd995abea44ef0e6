"""A data set on disk as `farflung data import` leaves it."""

from pathlib import Path

from farflung.data.task_row import TaskRow, TaskWriter


def task_folder(folder: Path, num_tasks: int = 60) -> Path:
    with TaskWriter(folder) as writer:
        for number in range(num_tasks):
            answer = str(number * 7)
            row = TaskRow(
                id=f"row-{number}",
                prompt=f"What is {number} times 7?",
                answer=answer,
                grader="math-exact@1",
                level=str(number % 3),
                solution=rf"\boxed{{{answer}}}",
            )
            writer.add(row)
        writer.finish(made_by="test", licence="mit", sources=[], skipped={})
    return folder
