"""The sections of report.html beside its series: verdict, parts of a step, memory, best, strips, costs, failures."""
