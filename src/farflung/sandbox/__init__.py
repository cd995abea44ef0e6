"""Limited child processes for what a model wrote: mathematics to be simplified, programs to be run."""
