package cli

import (
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edda/internal/testkit"
)

// metricRow is what the table of metrics says of one.
type metricRow struct{ kind, labels string }

// TestTheManualShowsTheMetricsOfAProcess: each metric that a process serves is in the table, of its kind and with its
// labels, and each of the table is served. One with labels comes with its first series, so it may be absent here;
// internal/archtest compares it with what the code registers.
func TestTheManualShowsTheMetricsOfAProcess(t *testing.T) {
	t.Parallel()
	page := string(testkit.Value[[]byte](t)(os.ReadFile("../docs/OPERATING.md")))
	_, page, _ = strings.Cut(page, "\n## Metrics\n")
	listed := map[string]metricRow{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(edda_[a-z0-9_]+)(?:\\{([a-z,]+)\\})?` \\| (\\w+)").FindAllStringSubmatch(page, -1) {
		listed[m[1]] = metricRow{m[3], sortedLabels(m[2])}
	}
	shop := newShop(t)
	dir := folder(t, map[string]string{"order.yaml": orderSaga, "effects.yaml": shop.effects()})
	r := startDev(t, "--hero", "--api-http-port", "0", "--api-ws-port", "0", "--data", t.TempDir(), dir)
	if code, out := r.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1","total":1}`); code != exitDone {
		t.Fatal(out)
	}
	r.until(t, "Z9", "instance", "describe", "order", "O1")
	served := metricsOf(t, r.addr)
	if len(served) < 50 {
		t.Fatalf("only %d metrics are served", len(served))
	}
	for _, name := range slices.Sorted(maps.Keys(served)) {
		if listed[name] != served[name] {
			t.Errorf("%s is served as %v, the table has %v", name, served[name], listed[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if _, is := served[name]; !is && listed[name].labels == "" {
			t.Errorf("%s is in the table, and not served", name)
		}
	}
}

func sortedLabels(list string) string {
	labels := strings.Split(list, ",")
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

// metricsOf returns what a process serves.
func metricsOf(t *testing.T, addr string) map[string]metricRow {
	t.Helper()
	resp := testkit.Value[*http.Response](t)(http.Get("http://" + addr + "/metrics"))
	defer resp.Body.Close()
	text := string(testkit.Value[[]byte](t)(io.ReadAll(resp.Body)))
	out := map[string]metricRow{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (edda_\w+) (\w+)\n(\w+)(?:\{([^}]*)\})? `).FindAllStringSubmatch(text, -1) {
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[4], -1) {
			if l[1] != "le" {
				labels = append(labels, l[1])
			}
		}
		out[m[1]] = metricRow{m[2], sortedLabels(strings.Join(labels, ","))}
	}
	return out
}
