//go:build !race

package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"edda/internal/harness"
)

// served has the labels of each series name that a process serves.
type served map[string]map[string]bool

func (s served) add(name string, labels ...string) {
	if s[name] == nil {
		s[name] = map[string]bool{"job": true, "instance": true, "__name__": true}
	}
	for _, l := range labels {
		s[name][l] = true
	}
}

// family adds the series of one family.
func (s served) family(f *dto.MetricFamily) {
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName())
		}
		s.add(f.GetName(), labels...)
		if f.GetType() == dto.MetricType_HISTOGRAM {
			s.add(f.GetName()+"_sum", labels...)
			s.add(f.GetName()+"_count", labels...)
			s.add(f.GetName()+"_bucket", append(labels, "le")...)
		}
	}
}

const patience = time.Minute

// port is that of an address.
func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// troubled is an edda dev --hero to which every trouble of testdata/parcel.yaml has happened,
// and which ran a job.
func troubled(t *testing.T) served {
	t.Helper()
	side := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"/ok": http.StatusOK, "/failed": http.StatusPaymentRequired, "/doubtful": http.StatusServiceUnavailable}[r.URL.Path])
	}))
	t.Cleanup(side.Close)
	dir := t.TempDir()
	manifest := filepath.Join(dir, "parcel.yaml")
	text := strings.ReplaceAll(read(t, "tools/deploy/testdata/parcel.yaml"), "URL", side.URL)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addrs, err := harness.FreeAddrs(2)
	if err != nil {
		t.Fatal(err)
	}
	e, err := harness.NewEdda(edda(), dir, manifest, "--hero", "--api-http-port", port(addrs[0]), "--api-ws-port", port(addrs[1]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	if err := e.StartReady(t.Context(), patience); err != nil {
		t.Fatalf("%v\n%s", err, e.Tail())
	}
	call := func(args ...string) {
		t.Helper()
		cmd := exec.Command(edda(), args...)
		cmd.Env = append(os.Environ(), "COORDINATOR_URL=http://"+addrs[0])
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("edda %v: %v\n%s", args, err, out)
		}
	}
	call("send", "Parcel.Placed", "--nats", e.NATS, "--id", "P1", "--data", `{"id": "P1", "amount": 1}`)
	call("send", "Parcel.Placed", "--nats", e.NATS, "--id", "P2", "--data", `{"id": "P2", "amount": "x"}`)
	call("hero", "call", "actor.create", `{"actor": {"id": 12, "pubkey": "", "address": []}}`)
	call("hero", "call", "context.create", `{"context": {"id": 7, "admins": [12], "readers": [], "executors": []}}`)
	call("hero", "call", "runner.create", `{"context_id": 7, "caller_id": 12, "runner": {"id": 1, "pubkey": "", "address": "", "topic": "", "local": true}}`)
	call("hero", "call", "job.create", `{"context_id": 7, "job": {"id": 1, "caller_id": 12, "script": "print(1)", "script_type": "python", "timeout": 10}}`)
	call("hero", "call", "flow.create", `{"context_id": 7, "flow": {"id": 33, "caller_id": 12, "jobs": [1]}}`)
	call("hero", "flow", "start", "7", "33")
	var out served
	err = harness.Poll(t.Context(), "the troubles", func() error {
		body, err := harness.Get(t.Context(), e.API+"/metrics")
		if err != nil {
			return err
		}
		p := expfmt.NewTextParser(model.UTF8Validation)
		families, err := p.TextToMetricFamilies(bytes.NewReader(body))
		if err != nil {
			return harness.Fatal(err)
		}
		out = served{}
		for _, f := range families {
			out.family(f)
		}
		for _, name := range []string{"edda_effect_checks_total", "edda_effect_breaker_state", "edda_dead_letters", "edda_hero_runner_jobs_ended_total", "edda_hero_runners_alive", "edda_hero_messages_total"} {
			if out[name] == nil {
				return fmt.Errorf("%s is not served", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, e.Tail())
	}
	return out
}

// servedElsewhere are metrics without a series while nothing is wrong, and those of a cluster. Their labels are those
// of the manual, which a test of the product holds to the code.
var servedElsewhere = regexp.MustCompile(`^edda_(intake_paused|sagas_behind|cluster_[a-z_]+|replica_lag_records|takeovers_total|log_[a-z_]+)$`)

// documented adds the metrics of the manual that servedElsewhere names.
func (s served) documented(page string) {
	for _, row := range regexp.MustCompile("(?m)^\\| `(edda_[a-z_]+)\\{([a-z,]+)\\}` \\| ([a-z]+)").FindAllStringSubmatch(page, -1) {
		if !servedElsewhere.MatchString(row[1]) {
			continue
		}
		labels := strings.Split(row[2], ",")
		s.add(row[1], labels...)
		if row[3] == "histogram" {
			s.add(row[1]+"_bucket", append(labels, "le")...)
		}
	}
}

// board is a dashboard.
type board struct {
	UID    string `json:"uid"`
	Panels []struct {
		Title, Description, Type string
		Targets                  []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Type string }
	}
}

// variables makes an expression of a dashboard one of PromQL.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$saga", ".*", "$effect", ".*")

func TestDashboardsAndAlertsAskForWhatEddaServes(t *testing.T) {
	t.Parallel()
	asked := map[string]string{} // where, by expression
	files, err := filepath.Glob(filepath.Join(root, "deploy/grafana/*.json"))
	if err != nil || len(files) != 3 {
		t.Fatalf("the dashboards are %v: %v", files, err)
	}
	for _, file := range files {
		var b board
		if err := json.Unmarshal([]byte(read(t, filepath.Join("deploy/grafana", filepath.Base(file)))), &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, p := range b.Panels {
			if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
				t.Errorf("%s: the panel %q has no description or no query", b.UID, p.Title)
			}
			for _, target := range p.Targets {
				asked[variables.Replace(target.Expr)] = b.UID + ": " + p.Title
			}
		}
	}
	if len(asked) < 60 {
		t.Fatalf("only %d expressions were found", len(asked))
	}
	for _, r := range rules(t) {
		asked[r.Expr] = r.Alert
	}
	there := troubled(t)
	there.documented(read(t, "docs/OPERATING.md"))
	there.add("up")
	for _, expr := range slices.Sorted(maps.Keys(asked)) {
		for _, problem := range there.lacks(expr) {
			t.Errorf("%s: %s", asked[expr], problem)
		}
	}
	if got := there.lacks(`sum by (fate, colour) (rate(edda_transitions_total{sagas="x"}[5m])) + edda_nothing`); len(got) != 3 {
		t.Errorf("of three mistakes %q were found", got)
	}
}

// lacks lists what an expression asks for and nothing serves.
func (s served) lacks(expr string) (problems []string) {
	e, err := promQL().ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var labels, grouped []string // of the selectors; asked for by aggregations and matchings
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			known := s[n.Name]
			if known == nil {
				problems = append(problems, n.Name+" is not served")
				return nil
			}
			labels = slices.AppendSeq(labels, maps.Keys(known))
			for _, m := range n.LabelMatchers {
				if !known[m.Name] {
					problems = append(problems, n.Name+" has no label "+m.Name)
				}
			}
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouped = append(grouped, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for _, l := range grouped {
		if !slices.Contains(labels, l) {
			problems = append(problems, "no metric of it has the label "+l)
		}
	}
	return problems
}
