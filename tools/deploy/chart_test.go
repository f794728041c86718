//go:build !race

package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/itchyny/gojq"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

const chartFolder = "deploy/helm/edda"

// files are those of the chart, as .Files of a template.
type files struct{ t *testing.T }

func (f files) Get(path string) string { return read(f.t, filepath.Join(chartFolder, path)) }

func (f files) Glob(pattern string) map[string][]byte {
	f.t.Helper()
	out := map[string][]byte{}
	paths, err := filepath.Glob(filepath.Join(root, chartFolder, pattern))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, p := range paths {
		name, err := filepath.Rel(filepath.Join(root, chartFolder), p)
		if err != nil {
			f.t.Fatal(err)
		}
		out[name] = nil
	}
	return out
}

// helmFunctions are those of Helm that the chart uses and sprig lacks.
func helmFunctions(all *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := all.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml": func(v any) string {
			text, err := yaml.Marshal(v)
			if err != nil {
				return ""
			}
			return strings.TrimSuffix(string(text), "\n")
		},
		"fromYaml": func(text string) map[string]any {
			out := map[string]any{}
			if err := yaml.Unmarshal([]byte(text), &out); err != nil {
				out["Error"] = err.Error()
			}
			return out
		},
		"fail": func(text string) (string, error) { return "", errors.New(text) },
	}
}

// readYAML decodes a file of the repository as Helm does.
func readYAML(t *testing.T, path string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(read(t, path)), &out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}

// merge puts values over those of the chart.
func merge(below, above map[string]any) map[string]any {
	for name, v := range above {
		a, isMap := v.(map[string]any)
		b, both := below[name].(map[string]any)
		if isMap && both {
			v = merge(b, a)
		}
		below[name] = v
	}
	return below
}

// render renders the chart. Only what Helm itself made of it is proof: see tools/helm.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	values = merge(readYAML(t, chartFolder+"/values.yaml"), values)
	if err := conforms(t, values); err != nil {
		return nil, err
	}
	info := readYAML(t, chartFolder+"/Chart.yaml")
	data := map[string]any{
		"Values": values, "Files": files{t},
		"Chart":   map[string]any{"Name": info["name"], "Version": info["version"], "AppVersion": info["appVersion"]},
		"Release": map[string]any{"Name": "orders", "Namespace": "shop", "Service": "Helm", "Revision": 1},
	}
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(sprig.TxtFuncMap()).Funcs(helmFunctions(all))
	paths, err := filepath.Glob(filepath.Join(root, chartFolder, "templates/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if _, err := all.New(filepath.Base(p)).Parse(read(t, filepath.Join(chartFolder, "templates", filepath.Base(p)))); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{}
	for _, p := range paths {
		name := filepath.Base(p)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var b strings.Builder
		if err := all.ExecuteTemplate(&b, name, data); err != nil {
			return nil, err
		}
		out[name] = strings.ReplaceAll(b.String(), "<no value>", "")
	}
	return out, nil
}

// conforms checks values with the schema of the chart.
func conforms(t *testing.T, values map[string]any) error {
	t.Helper()
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(read(t, chartFolder+"/values.schema.json")))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("values.schema.json", schema); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(values)
}

func TestTheChartRendersAsHelmDid(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"least", "all", "cluster"} {
		rendered, err := render(t, readYAML(t, "deploy/helm/golden/"+name+".values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, file := range slices.Sorted(maps.Keys(rendered)) {
			text.WriteString("# " + file + "\n" + strings.TrimSpace(rendered[file]) + "\n")
		}
		if want := read(t, "deploy/helm/golden/"+name+".golden"); text.String() != want {
			t.Errorf("the chart with the values %s differs from deploy/helm/golden: run make chart UPDATE=-update and read the difference\n%s", name, text.String())
		}
	}
}

func TestTheChartCarriesTheDashboardsAndAlertsAsTheyAre(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, map[string]any{"dashboards": map[string]any{"enabled": true}, "prometheusRule": map[string]any{"enabled": true}})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, object := range strings.Split(rendered["monitoring.yaml"], "\n---\n") {
		var m struct {
			Kind string
			Data map[string]string
			Spec map[string]any
		}
		if err := yaml.Unmarshal([]byte(object), &m); err != nil {
			t.Fatal(err)
		}
		for name, text := range m.Data {
			if seen++; text != read(t, "deploy/grafana/"+name) {
				t.Errorf("the dashboard %s differs", name)
			}
		}
		if m.Kind == "PrometheusRule" {
			if seen++; !reflect.DeepEqual(m.Spec, readYAML(t, rulesFile)) {
				t.Error("the alerts differ")
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d dashboards and files of alerts were found", seen)
	}
}

func TestTheChartRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"{replicas: 2}": "replicas is 2, and a store has one process",
		"{cluster: {enabled: true}, replicas: 1, secrets: {tokens: a, node: b, tls: c}}": "a cluster needs a second copy",
		"{cluster: {enabled: true}, replicas: 3}":                                        "cluster.enabled needs secrets.tokens",
		"{cluster: {enabled: true}, replicas: 3, secrets: {tokens: a, node: b}}":         "cluster.enabled needs secrets.tls",
		"{cluster: {enabled: true}, replicas: 3, secrets: {tokens: a, tls: c}}":          "cluster.enabled needs secrets.node",
		"{cluster: {enabled: true, name: a.b}, replicas: 3}":                             "/cluster/name",
		"{api: {expose: true}}":                                 "api.expose needs secrets.tokens",
		"{api: {expose: true}, secrets: {tokens: edda-tokens}}": "api.expose needs secrets.tls",
		"{replica: 1}":                        "'replica' not allowed",
		"{terminationGracePeriodSeconds: 10}": "terminationGracePeriodSeconds",
		"{persistence: {size: 1Gi, accessModes: [ReadWriteMany]}}": "accessModes",
	} {
		v := map[string]any{}
		if err := yaml.Unmarshal([]byte(values), &v); err != nil {
			t.Fatal(err)
		}
		if _, err := render(t, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// edda reads the config map of the chart, and a folder of manifests that is laid as Kubernetes
// lays a config map: links into a hidden folder, which is a link too.
func TestEddaTakesWhatTheChartMounts(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"least", "cluster"} {
		t.Run(values, func(t *testing.T) { takesConfig(t, values) })
	}
}

func takesConfig(t *testing.T, values string) {
	rendered, err := render(t, readYAML(t, "deploy/helm/golden/"+values+".values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range strings.Split(rendered["configmap.yaml"], "\n---\n") {
		var m struct{ Data map[string]string }
		if err := yaml.Unmarshal([]byte(object), &m); err != nil {
			t.Fatal(err)
		}
		dir := mounted(t, m.Data)
		args := []string{"lint", dir}
		if m.Data["edda.yaml"] != "" {
			args = []string{"config", "view", "--config", filepath.Join(dir, "edda.yaml")}
		}
		if out, err := exec.Command(edda(), args...).CombinedOutput(); err != nil {
			t.Errorf("edda %v: %v\n%s", args, err, out)
		}
	}
}

// podSet is what a test reads of a stateful set.
type podSet struct {
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Env []struct {
						Name, Value string
						ValueFrom   struct{ FieldRef struct{ FieldPath string } }
					}
					Lifecycle map[string]any
				}
			}
		}
	}
}

// Each pod of a cluster is a node of its own name, at its own address.
func TestThePodsOfAClusterAreItsNodes(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, readYAML(t, "deploy/helm/golden/cluster.values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var set podSet
	if err := yaml.Unmarshal([]byte(rendered["statefulset.yaml"]), &set); err != nil {
		t.Fatal(err)
	}
	container := set.Spec.Template.Spec.Containers[0]
	// as the kubelet does
	cmd, pod := exec.Command(edda(), "config", "view"), map[string]string{}
	for _, v := range container.Env {
		if v.ValueFrom.FieldRef.FieldPath == "metadata.name" {
			v.Value = set.Metadata.Name + "-0"
		}
		for name, value := range pod {
			v.Value = strings.ReplaceAll(v.Value, "$("+name+")", value)
		}
		pod[v.Name] = v.Value
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"node: orders-edda-0", "advertise: https://orders-edda-0.orders-edda.shop.svc:8700"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: the configuration lacks %q:\n%s", err, want, out)
		}
	}
	if pod["EDDA_URL"] != "https://orders-edda-0.orders-edda.shop.svc:8700" {
		t.Errorf("commands in the pod call %s", pod["EDDA_URL"])
	}
	if container.Lifecycle != nil {
		t.Errorf("a standby would forward the hook to the owner: %v", container.Lifecycle)
	}
}

// The job that deploys the manifests calls a node of the cluster as an operator of all tenants.
func TestTheJobOfAClusterDeploysItsManifests(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, readYAML(t, "deploy/helm/golden/cluster.values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Args []string
						Env  []struct{ Name, Value string }
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(rendered["deploy.yaml"]), &job); err != nil {
		t.Fatal(err)
	}
	container := job.Spec.Template.Spec.Containers[0]
	args := slices.Clone(container.Args)
	if i := slices.Index(args, "/manifests"); i < 0 {
		t.Fatalf("the job runs %q", args)
	} else {
		args[i] = mounted(t, map[string]string{"order.yaml": "saga: order\n"})
	}
	args[len(args)-1] = "0s" // it waits for no node
	cmd := exec.Command(edda(), args...)
	for _, v := range container.Env {
		if v.Name == "EDDA_URL" && v.Value != "https://orders-edda-0.orders-edda.shop.svc:8700" {
			t.Errorf("it calls %s", v.Value)
		}
	}
	cmd.Env = []string{"EDDA_URL=http://127.0.0.1:1"}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no Edda answers at http://127.0.0.1:1") {
		t.Errorf("edda %q: %v\n%s", args, err, out)
	}
	least, err := render(t, readYAML(t, "deploy/helm/golden/least.values.yaml"))
	if err != nil || strings.TrimSpace(least["deploy.yaml"]) != "" {
		t.Errorf("a single process has a job: %v %s", err, least["deploy.yaml"])
	}
}

// The pod for a command on a stopped cluster has the settings and the volume of a pod that was stopped, and runs nothing else.
func TestAnOfflinePodTakesTheVolumeOfItsPod(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, readYAML(t, "deploy/helm/golden/cluster.values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var set any
	if err := yaml.Unmarshal([]byte(rendered["statefulset.yaml"]), &set); err != nil {
		t.Fatal(err)
	}
	text := jq(t, "deploy/helm/offline.jq", set, map[string]string{"pod": "orders-edda-1", "edda": "cluster split --to /data/split"})
	var pod struct {
		Metadata map[string]any
		Spec     struct {
			Containers []map[string]any
			Volumes    []struct {
				Name                  string
				PersistentVolumeClaim struct{ ClaimName string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	container := pod.Spec.Containers[0]
	if pod.Metadata["name"] != "orders-edda-1-offline" || pod.Metadata["labels"] != nil {
		t.Errorf("a service or a budget may count it: %v", pod.Metadata)
	}
	if got, want := fmt.Sprint(container["args"]), "[cluster split --to /data/split]"; got != want {
		t.Errorf("it runs %s, want %s", got, want)
	}
	for name := range container {
		if strings.HasSuffix(name, "Probe") || name == "lifecycle" {
			t.Errorf("it has a %s, and serves nothing", name)
		}
	}
	claim := pod.Spec.Volumes[len(pod.Spec.Volumes)-1]
	if claim.Name != "data" || claim.PersistentVolumeClaim.ClaimName != "data-orders-edda-1" || !strings.Contains(fmt.Sprint(container["volumeMounts"]), "mountPath:/data name:data") {
		t.Errorf("it has %+v at %v", claim, container["volumeMounts"])
	}
	for _, want := range []string{"name:EDDA_CONFIG value:/etc/edda/edda.yaml", "name:EDDA_CLUSTER_NODE value:orders-edda-1"} {
		if got := fmt.Sprint(container["env"]); strings.Count(got, want) != 1 || strings.Contains(got, "fieldRef") {
			t.Errorf("its environment %s lacks %s", got, want)
		}
	}
}

// jq runs a program of jq, and returns what it makes of a document.
func jq(t *testing.T, path string, of any, args map[string]string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var values []any
	for name, value := range args {
		names, values = append(names, "$"+name), append(values, value)
	}
	parsed, err := gojq.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	program, err := gojq.Compile(parsed, gojq.WithVariables(names))
	if err != nil {
		t.Fatal(err)
	}
	out, _ := program.Run(of, values...).Next()
	if err, failed := out.(error); failed {
		t.Fatal(err)
	}
	made, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// mounted lays files as a volume of a config map.
func mounted(t *testing.T, data map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..2026_01_01"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..2026_01_01", filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, text := range data {
		if err := os.WriteFile(filepath.Join(dir, "..2026_01_01", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if len(data) == 0 {
		t.Error("a config map of the chart is empty")
	}
	return dir
}

// The pod gets its time to stop, also with the preStop hook, which begins the same stop.
func TestThePodGivesTheDrainItsTime(t *testing.T) {
	t.Parallel()
	seconds, ok := readYAML(t, chartFolder+"/values.yaml")["terminationGracePeriodSeconds"].(float64)
	if !ok || seconds < drainSeconds() {
		t.Errorf("the pod has %v s, and a stop may take %v s", seconds, drainSeconds())
	}
}
