package main

import (
	"slices"
	"testing"

	"edda/manifests"
	"edda/saga"
)

const nightly = `saga: nightly
key: event.name
schedule: {run: {every: 1h, tenants: [acme, beta]}}
on:
  schedule.run: {start: true, do: [{done: 1}]}
`

func TestSchedulesStartForTheTenantsServedHere(t *testing.T) {
	file, problems := manifests.Parse("nightly.yaml", []byte(nightly))
	if problems.Failed() {
		t.Fatal(problems)
	}
	program, problems := saga.Compile(file.Sagas[0], saga.Options{})
	if problems.Failed() {
		t.Fatal(problems)
	}
	set, err := saga.NewSet(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ served, want []string }{
		{nil, []string{"acme", "beta"}},
		{[]string{"b*"}, []string{"beta"}},
		{[]string{"gamma"}, nil},
	} {
		var got []string
		for _, spec := range (scheduled{set, tt.served}).Schedules() {
			got = append(got, spec.Tenants...)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.served, got, tt.want)
		}
	}
}
