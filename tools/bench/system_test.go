package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edda/internal/harness"
	"edda/internal/natsservers"
	"edda/internal/testkit"
)

// TestMain makes the test binary the effect server where Run starts it as such.
func TestMain(m *testing.M) {
	natsservers.Main()
	if len(os.Args) > 1 && os.Args[1] == effectsCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// buildEdda builds the binary under test.
func buildEdda(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edda")
	testkit.Must(t, harness.GoBuild("-C", "../..", "-o", path, "./cmd/edda"))
	return path
}

// TestTheBenchmarkMeasuresAndCounts runs every workload in a small size.
func TestTheBenchmarkMeasuresAndCounts(t *testing.T) {
	edda, base := buildEdda(t), readCounts(t)
	for _, group := range []map[string]int{{"W1": 3, "W2": 1}, {"W3": 4}, {"W4": 1, "W5": 1, "W6": 1}} { // phases of each
		o := Options{Edda: edda, Short: true, Dir: t.TempDir(), Sizes: Sizes{Instances: 60, Open: 200 * time.Millisecond, After: time.Second}}
		for _, name := range Names() {
			if group[name] > 0 {
				o.Workloads = append(o.Workloads, name)
			}
		}
		t.Run(strings.Join(o.Workloads, ""), func(t *testing.T) {
			t.Parallel()
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, res := range report.Results {
				group[res.Workload]--
				measured(t, res)
				for _, worse := range base.worse(res) {
					t.Error(worse)
				}
			}
			for name, left := range group {
				if left != 0 {
					t.Errorf("%s: %d phases too few", name, left)
				}
			}
			var text bytes.Buffer
			report.Print(&text)
			if !strings.Contains(text.String(), "REACHED") {
				t.Errorf("the tables:\n%s", &text)
			}
		})
	}
}

// TestAClusterIsMeasuredBesideOneProcess runs W7 in a small size.
func TestAClusterIsMeasuredBesideOneProcess(t *testing.T) {
	report, err := Run(t.Context(), Options{Edda: buildEdda(t), Short: true, Dir: t.TempDir(), Workloads: []string{"W7"}, Sizes: Sizes{Instances: 60}})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	report.Print(&text)
	for _, phase := range []string{"one process full", "one process alone", "2 nodes full", "2 nodes alone", "2 nodes moves"} {
		i := slices.IndexFunc(report.Results, func(r *Result) bool { return r.Phase == phase })
		if i < 0 {
			t.Fatalf("%s is missing:\n%s", phase, &text)
		}
		res := report.Results[i]
		if res.Latency == nil || res.Latency.P50 <= 0 {
			t.Errorf("%s: no latency", phase)
		}
		if moves := strings.HasSuffix(phase, "moves"); !moves && (res.Rate <= 0 || res.Costs.StoreBytes == 0 || res.Costs.NATS == 0) || moves && res.Count != 2 {
			t.Errorf("%s: %+v %+v", phase, res, res.Costs)
		}
	}
	for _, want := range []string{"bytes of the log for one", "the longest time in which no order ended"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not told:\n%s", want, &text)
		}
	}
}

// measured complains of what a result does not say.
func measured(t *testing.T, res *Result) {
	t.Helper()
	if res.Rate == 0 && res.Latency == nil {
		t.Errorf("%s %s: nothing was measured", res.Workload, res.Phase)
	}
	if res.Workload != "W6" && (res.Costs.StoreBytes == 0 || res.Costs.Fsyncs == 0) {
		t.Errorf("%s %s: nothing was written: %+v", res.Workload, res.Phase, *res.Costs)
	}
	if res.Costs.Anonymous == 0 {
		t.Errorf("%s %s: no memory", res.Workload, res.Phase)
	}
	if len(res.Floors) == 0 && (res.Latency == nil || res.Phase == "full load") {
		t.Errorf("%s %s: no floor", res.Workload, res.Phase)
	}
	for _, f := range res.Floors {
		if f.Fraction <= 0 {
			t.Errorf("%s %s, %s: no fraction", res.Workload, res.Phase, f.Name)
		}
	}
}

// counts are what does not depend on how busy the machine is, for one operation of
// each phase of a short run: bytes put into the store, and commits where only one
// operation is under way.
type counts map[string]struct {
	StoreBytes float64 `json:"store_bytes"`
	Commits    float64 `json:"commits"`
}

// tolerated is how much more than the counts of testdata/counts.json is no
// regression. Where it has become less, write the new count there, so that it stays.
const tolerated = 1.1

func readCounts(t *testing.T) (c counts) {
	t.Helper()
	text, err := os.ReadFile("testdata/counts.json")
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// worse says what a result takes more of than it did.
func (c counts) worse(res *Result) (out []string) {
	name := res.Workload + " " + res.Phase
	base, ok := c[name]
	if !ok {
		return nil
	}
	if got := res.Costs.StoreBytes; got > base.StoreBytes*tolerated {
		out = append(out, fmt.Sprintf("%s puts %.0f bytes into the store for one, it was %.0f", name, got, base.StoreBytes))
	}
	if got := res.Costs.Commits; base.Commits > 0 && got > base.Commits*tolerated {
		out = append(out, fmt.Sprintf("%s takes %.1f commits for one, it was %.1f", name, got, base.Commits))
	}
	return out
}

func TestMoreBytesAndCommitsAreNoticed(t *testing.T) {
	base := readCounts(t)
	for name, c := range base {
		workload, phase, _ := strings.Cut(name, " ")
		of := func(times float64) *Result {
			return &Result{Workload: workload, Phase: phase, Costs: &Costs{StoreBytes: c.StoreBytes * times, Commits: c.Commits * times}}
		}
		want := 1
		if c.Commits > 0 {
			want = 2
		}
		if got := base.worse(of(1.12)); len(got) != want {
			t.Errorf("%s, an eighth more: %v", name, got)
		}
		if got := base.worse(of(1.05)); len(got) != 0 {
			t.Errorf("%s, a twentieth more: %v", name, got)
		}
	}
}

// TestALossyEffectServerFailsTheBenchmark: however fast it was.
func TestALossyEffectServerFailsTheBenchmark(t *testing.T) {
	report, err := Run(t.Context(), Options{Edda: buildEdda(t), Short: true, Workloads: []string{"W1"}, Dir: t.TempDir(), Lose: 20})
	if err == nil || !strings.Contains(err.Error(), "want once for each of") || len(report.Failed) == 0 {
		t.Errorf("%v", err)
	}
	if len(report.Results) > 0 {
		t.Errorf("%s was measured although its calls were lost", report.Results[0].Phase)
	}
}
