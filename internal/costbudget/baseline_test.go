package costbudget

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const baselineFile = "baseline.json"

// tolerance is by how much a stage may cost more than the baseline says.
const tolerance = 0.10

// counts are what one operation of each stage costs, by stage and unit.
type counts map[string]map[string]float64

func readBaseline(t *testing.T) counts {
	t.Helper()
	page, err := os.ReadFile(baselineFile)
	if err != nil {
		t.Fatal(err)
	}
	var c counts
	if err := json.Unmarshal(page, &c); err != nil {
		t.Fatalf("%s: %v", baselineFile, err)
	}
	return c
}

func (c counts) write(t *testing.T) {
	t.Helper()
	page, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(baselineFile, append(page, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dearer says what costs more than a baseline allows, and what one of the two lacks.
func (c counts) dearer(baseline counts) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if baseline[name] == nil {
			out = append(out, fmt.Sprintf("%s: the baseline does not have it", name))
			continue
		}
		for _, unit := range slices.Sorted(maps.Keys(c[name])) {
			out = append(out, rise(name, unit, baseline[name], c[name][unit])...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(baseline)) {
		if c[name] == nil {
			out = append(out, fmt.Sprintf("%s: the baseline has it, and there is no such stage", name))
		}
	}
	return out
}

func rise(name, unit string, baseline map[string]float64, is float64) []string {
	was, known := baseline[unit]
	switch {
	case !known:
		return []string{fmt.Sprintf("%s: the baseline does not have its %s", name, unit)}
	case is <= was*(1+tolerance):
		return nil
	case was == 0:
		return []string{fmt.Sprintf("%s: %g %s, were none", name, is, unit)}
	}
	return []string{fmt.Sprintf("%s: %g %s, were %g: %.1f %% more", name, is, unit, was, 100*(is/was-1))}
}

func TestWhatIsDearer(t *testing.T) {
	baseline := counts{"a": {"allocs/op": 100, "B/op": 1000}, "gone": {"allocs/op": 1}, "free": {"allocs/op": 0}}
	for _, test := range []struct {
		now  counts
		want string
	}{
		{counts{"a": {"allocs/op": 110, "B/op": 1}, "free": {"allocs/op": 0}, "gone": {"allocs/op": 1}}, ""},
		{counts{"a": {"allocs/op": 111, "B/op": 1300}, "free": {"allocs/op": 0}, "gone": {"allocs/op": 1}},
			"a: 1300 B/op, were 1000: 30.0 % more; a: 111 allocs/op, were 100: 11.0 % more"},
		{counts{"a": {"fsyncs/op": 1}, "free": {"allocs/op": 2}, "new": {"allocs/op": 1}},
			"a: the baseline does not have its fsyncs/op; free: 2 allocs/op, were none; new: the baseline does not have it; gone: the baseline has it, and there is no such stage"},
	} {
		if got := strings.Join(test.now.dearer(baseline), "; "); got != test.want {
			t.Errorf("%v:\n got %s\nwant %s", test.now, got, test.want)
		}
	}
}
