"""Lines to copy, which ``--help`` of the command that they call shows, in at most 80 columns with their indent."""

LINES: tuple[str, ...] = tuple(
    """\
cotenant up
cotenant up --match 'system.slice/nginx.service=LS' --match 'user.slice/*=BE'
cotenant up --latency-log 'shop=/var/log/nginx/access.log:" {seconds}$'
cotenant up --enforce --dry-run --match 'batch.slice/*=BE'
cotenant top
cotenant top --sort p --match 'system.slice/nginx.service=LS'
cotenant top --once
cotenant explain
cotenant explain samples.jsonl --rules rules.yaml
cotenant explain pod shop/cart-7
cotenant explain node n1
cotenant explain offline
cotenant explain offline batch --url http://127.0.0.1:7080
cotenant check
cotenant check --require psi cpu-burst
cotenant check --root /host --json
cotenant check --koordinator --node n1
cotenant check --daemonsets
cotenant sample
cotenant sample --json --period 500ms --count 10
cotenant run --qos BE -- make -j64
cotenant run --qos LS --name api --cpus 2 --memory 4Gi -- ./server
cotenant run --qos BE --dry-run -- make
cotenant enforce --once --dry-run --pods pods.json --slo nodeslo.yaml
cotenant enforce --once --pods pods.json --slo nodeslo.yaml --node node.json
cotenant restore
cotenant restore --root /host --json
cotenant verify smt --online-cpus 0-3
cotenant verify regression
cotenant verify kernel --json
cotenant node --node n1 --analyzer analyzer:7443 --analyzer-ca ca.crt
cotenant node --node n1 --mode enforce --metrics 127.0.0.1:7072
cotenant node --node n1 --shadow --metrics 127.0.0.1:7072
cotenant analyzer --page 127.0.0.1:7080
cotenant analyzer --reports-out reports.json
cotenant scheduler
cotenant scheduler --reports reports.json
cotenant scheduler --taints soft --max-excluded-fraction 0.1
cotenant scheduler --clear
cotenant scheduler config --extender
cotenant scheduler daemonsets
cotenant manager
cotenant manager --latency --affinity hard
cotenant manager render slo-controller-config.yaml nodes.yaml
cotenant manager admit profile.yaml pod.yaml
cotenant manager unmutated
cotenant overcommit n1
cotenant overcommit --node node.yaml --pods pods.yaml --config config.yaml
cotenant overcommit --clear
cotenant rollout plan enforce.yaml
cotenant rollout status
cotenant rollout status enforce
cotenant rollout pause enforce
cotenant rollout resume enforce
cotenant rollout abort enforce
cotenant crd print | kubectl apply --server-side -f -
cotenant crd install
cotenant crd install --koordinator clustercolocationprofiles
cotenant uninstall wait --namespace cotenant-system
cotenant uninstall finish --namespace cotenant-system --no-restored
cotenant record samples.jsonl
cotenant record samples.jsonl --period 1s --count 3600
cotenant replay samples.jsonl
cotenant replay samples.jsonl --rules rules.yaml --json
cotenant config check rules.yaml
cotenant config explain rules.yaml
cotenant config presets mco
cotenant config templates redis
cotenant config history
cotenant config history --cluster --namespace cotenant-system
cotenant config rollback 3
cotenant recommend
cotenant recommend --from a.jsonl --latency p99.jsonl --write rules.yaml
cotenant recommend --from prometheus --url http://127.0.0.1:9090 --hours 48
cotenant simulate nodes --count 100 --noisy-ratio 0.05
cotenant simulate nodes --count 20 --prefix kwok- --follow
""".splitlines()
)
