from benchmarks import metrics, objectives

for module in (metrics, objectives):
    module.main()
