# A pod for one edda command on the volume of a stopped pod, made of the stateful set of the chart:
#   kubectl get statefulset orders-edda -o json |
#     jq -f deploy/helm/offline.jq --arg pod orders-edda-0 --arg edda "cluster relog" | kubectl create -f -
{
  apiVersion: "v1", kind: "Pod",
  metadata: {name: "\($pod)-offline", namespace: .metadata.namespace},
  spec: (.spec.template.spec
    | .restartPolicy = "Never"
    | .volumes += [{name: "data", persistentVolumeClaim: {claimName: "data-\($pod)"}}]
    | .containers[0] |= (del(.startupProbe, .livenessProbe, .readinessProbe, .lifecycle)
      | .args = ($edda | split(" "))
      | .env = [{name: "EDDA_CONFIG", value: "/etc/edda/edda.yaml"}, {name: "EDDA_CLUSTER_NODE", value: $pod}]
        + [.env[]? | select(.name != "EDDA_CLUSTER_NODE")]))
}
