package node

import (
	"slices"
	"testing"

	"edda/internal/testkit"
	"edda/manifests"
)

const nightly = `saga: nightly
key: event.name
schedule: {run: {every: 1h, tenants: [acme, beta]}}
on:
  schedule.run: {start: true, do: [{done: 1}]}
`

func TestSchedulesStartForTheTenantsServedHere(t *testing.T) {
	set := testkit.Set(t, nightly)
	for _, tt := range []struct{ served, want []string }{
		{nil, []string{"acme", "beta"}},
		{[]string{"b*"}, []string{"beta"}},
		{[]string{"gamma"}, nil},
	} {
		var got []string
		for _, spec := range (scheduled{set, tt.served, ""}).Schedules() {
			got = append(got, spec.Tenants...)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.served, got, tt.want)
		}
	}
}

// TestAScheduleWithoutTenantsRunsForTheDevTenant: it ran for a tenant without a
// name, whose commands no subject can carry.
func TestAScheduleWithoutTenantsRunsForTheDevTenant(t *testing.T) {
	const text = "saga: s\nkey: event.name\nschedule: {nightly: {every: 1h}}\non: {schedule.nightly: {start: true, do: [{done: 1}]}}\n"
	set := testkit.Set(t, text)
	if got := (scheduled{set, nil, DevTenant}).Schedules(); len(got) != 1 || !slices.Equal(got[0].Tenants, []string{DevTenant}) {
		t.Errorf("schedules %+v", got)
	}
	file, _ := manifests.Parse("s.yaml", []byte(text))
	l := loaded{files: []*manifests.File{file}}
	if found := l.needsTenants(Settings{Config: Config{Tenancy: tenancyConfig{Enabled: true}}}); !found.Failed() {
		t.Error("under tenancy edda run takes a schedule that names no tenant")
	}
	for _, s := range []Settings{{Dev: true, Config: Config{Tenancy: tenancyConfig{Enabled: true}}}, {}} {
		if found := l.needsTenants(s); len(found) > 0 {
			t.Errorf("%v", found)
		}
	}
}
