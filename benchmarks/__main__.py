from benchmarks import metrics, objectives, step_profile

for module in (metrics, objectives, step_profile):
    module.main()
