// Package helm judges the chart in deploy/helm with Helm itself: it lints the chart, renders it
// as Helm does, and decodes the objects strictly as Kubernetes types. It is a module of its own,
// run by `make chart`, because Helm takes minutes to compile. What Helm rendered is kept in
// deploy/helm/golden, and the tests of tools/deploy hold the chart to it in each run.
package helm
