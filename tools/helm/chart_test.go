package helm

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what Helm renders to deploy/helm/golden")

const folder = "../../deploy/helm"

// load reads the chart, and the values of a case.
func load(t *testing.T, values string) (*chart.Chart, map[string]any) {
	t.Helper()
	c, err := loader.Load(filepath.Join(folder, "edda"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ReadValuesFile(values)
	if err != nil {
		t.Fatal(err)
	}
	return c, v
}

func render(c *chart.Chart, values map[string]any) (map[string]string, error) {
	release := chartutil.ReleaseOptions{Name: "orders", Namespace: "shop", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

func cases(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "golden/*.values.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the cases are %v: %v", files, err)
	}
	return files
}

func TestHelmFindsNothingWrong(t *testing.T) {
	for _, file := range cases(t) {
		_, values := load(t, file)
		linter := lint.All(filepath.Join(folder, "edda"), values, "shop", true)
		for _, m := range linter.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", file, m)
			}
		}
	}
}

func TestTheGoldenFilesAreWhatHelmRenders(t *testing.T) {
	for _, file := range cases(t) {
		rendered, err := render(load(t, file))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(rendered)) {
			text.WriteString("# " + filepath.Base(name) + "\n" + strings.TrimSpace(rendered[name]) + "\n")
			if filepath.Ext(name) == ".yaml" {
				decode(t, rendered[name])
			}
		}
		golden := strings.TrimSuffix(file, ".values.yaml") + ".golden"
		if *update {
			if err := os.WriteFile(golden, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if text.String() != string(want) {
			t.Errorf("%s differs from what Helm renders; see the difference with: make chart UPDATE=-update, then git diff", golden)
		}
	}
}

// The dashboards and alerts are those of deploy/; no golden file repeats them.
func TestHelmRendersTheDashboardsAndAlerts(t *testing.T) {
	c, values := load(t, cases(t)[0])
	values["dashboards"], values["prometheusRule"] = map[string]any{"enabled": true}, map[string]any{"enabled": true}
	rendered, err := render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	text := rendered["edda/templates/monitoring.yaml"]
	decode(t, text)
	for _, want := range []string{"edda-sagas.json:", "edda-effects.json:", "edda-hero.json:", "kind: PrometheusRule", "alert: EddaStuckSagas"} {
		if !strings.Contains(text, want) {
			t.Errorf("monitoring.yaml lacks %s", want)
		}
	}
}

// decode decodes the objects of a file strictly, those of Kubernetes itself.
func decode(t *testing.T, text string) {
	t.Helper()
	for _, one := range strings.Split(text, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(one), &kind); err != nil {
			t.Fatal(err)
		}
		object, known := map[string]any{
			"StatefulSet": &appsv1.StatefulSet{}, "Service": &corev1.Service{}, "ConfigMap": &corev1.ConfigMap{},
			"PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "Job": &batchv1.Job{},
			"ServiceMonitor": &map[string]any{}, "PrometheusRule": &map[string]any{},
		}[kind.Kind]
		if kind.Kind == "" && strings.TrimSpace(one) == "" {
			continue
		}
		if !known {
			t.Errorf("an object of kind %q", kind.Kind)
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(one), object); err != nil {
			t.Errorf("%s: %v\n%s", kind.Kind, err, one)
		}
	}
}

func TestHelmRefusesWhatCannotWork(t *testing.T) {
	for _, c := range []struct {
		values map[string]any
		want   string
	}{
		{map[string]any{"replicas": 2}, "replicas is 2, and a store has one process"},
		{map[string]any{"replicas": 3, "cluster": map[string]any{"enabled": true}}, "cluster.enabled needs secrets.tokens"},
		{map[string]any{"api": map[string]any{"expose": true}}, "api.expose needs secrets.tokens"},
		{map[string]any{"replica": 1}, "replica"},
		{map[string]any{"terminationGracePeriodSeconds": 10}, "terminationGracePeriodSeconds"},
	} {
		chart, _ := load(t, cases(t)[0])
		if _, err := render(chart, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.values, err, c.want)
		}
	}
}
