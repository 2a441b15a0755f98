"""`sizewise demo`: a real encoder under changing sizes, Sizewise beside torch.compile and eager.

    corpus, traffic      what is asked: sentences and the batches they arrive in
    worker, contestants  one contestant in a process of its own
    children, runner     starts the processes one after the other and collects what they report
    restarts             kills a process that serves, and starts another one, which has no compiler
    restarted, watch     what the new process does, and what it is watched for; in the worker
    results              what was measured, as data
    screen, page, plot   shows it on a terminal and as one HTML file

The command itself imports neither torch nor transformers; its child processes do.
"""
