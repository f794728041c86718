package wire

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"edda"
)

func TestBuild(t *testing.T) {
	tests := []struct {
		subject Subject
		on, off string
	}{
		{Subject{Tenant: "acme", Family: FamilyAggregate, Name: "Order", ID: "O1"},
			"tenant.acme.aggregate.Order.O1", "aggregate.Order.O1"},
		{Subject{Tenant: "acme", Family: FamilyEffect, Name: "charge", ID: "c-1"},
			"tenant.acme.effect.charge.c-1", "effect.charge.c-1"},
		{Subject{Tenant: "acme", Family: FamilyWorkflow, Name: "order", ID: "a b"},
			"tenant.acme.workflow.order.a%20b", "workflow.order.a%20b"},
		{Subject{Tenant: "a.b", Family: FamilyCommand, Name: "Order", ID: "*"},
			"tenant.a%2Eb.command.Order.%2A", "command.Order.%2A"},
		{Subject{Tenant: "ü", Family: FamilyResult, Name: ">", ID: ""},
			"tenant.ü.effect_result.%3E.%-", "effect_result.%3E.%-"},
		{Subject{Tenant: "acme", Family: FamilyEcho, Name: "charge", ID: "echo"},
			"tenant.acme.effect_result.charge.echo.echo", "effect_result.charge.echo.echo"},
		{Subject{Tenant: "", Family: FamilyFact, Name: "order", ID: "50%\n"},
			"tenant.%-.workflow_event.order.50%25%0A", "workflow_event.order.50%25%0A"},
	}
	for _, test := range tests {
		on, err := Grammar{}.Build(test.subject)
		if err != nil || on != test.on {
			t.Errorf("with tenancy: %q, %v; want %q", on, err, test.on)
		}
		off, err := Grammar{NoTenancy: true}.Build(test.subject)
		if err != nil || off != test.off {
			t.Errorf("without tenancy: %q, %v; want %q", off, err, test.off)
		}
	}
}

func TestParseRefusesForeignSubjects(t *testing.T) {
	for _, subject := range []string{
		"", "tenant", "tenant.acme", "order.acme.aggregate.Order.O1", "tenant.acme.aggregate.Order",
		"tenant.acme.aggregate.Order.O1.more", "tenant.acme.unknown.Order.O1", "tenant.acme.aggregate.Order.O1.echo",
		"tenant.acme.effect_result.charge.c1.more", "tenant.acme.effect_result.charge.c1.echo.echo", "tenant.acme.effect_result.echo",
	} {
		if s, err := (Grammar{}).Parse(subject); err == nil {
			t.Errorf("%q is taken for %+v", subject, s)
		}
	}
}

func TestParseLeavesForeignPercentSigns(t *testing.T) {
	s, err := Grammar{}.Parse("tenant.acme.aggregate.Order.50%off%4")
	if err != nil || s.ID != "50%off%4" {
		t.Errorf("got %q, %v", s.ID, err)
	}
}

func families() *rapid.Generator[Family] {
	return rapid.SampledFrom([]Family{
		FamilyAggregate, FamilyEffect, FamilyWorkflow, FamilyCommand, FamilyResult, FamilyFact, FamilyEcho,
	})
}

// names draws any texts, and texts with runes that NATS does not allow.
func names() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune(" .*>%-~\n\x00\x7fäA\uFFFD")), 0, 12, -1))
}

func TestSubjectsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Grammar{NoTenancy: rapid.Bool().Draw(t, "off")}
		want := Subject{Family: families().Draw(t, "family"), Name: names().Draw(t, "name"), ID: names().Draw(t, "id")}
		if !g.NoTenancy {
			want.Tenant = names().Draw(t, "tenant")
		}
		subject, err := g.Build(want)
		if err != nil {
			t.Skip("too long")
		}
		legal(t, g, want.Family, subject)
		got, err := g.Parse(subject)
		if err != nil {
			t.Fatalf("%q: %v", subject, err)
		}
		if got.Short {
			if !got.Is(want.ID) || len(g.join(want, escape(want.ID))) <= MaxSubject {
				t.Fatalf("%q is not the short form of %q", subject, want.ID)
			}
			got.ID, got.Short = want.ID, false
		}
		if got != want {
			t.Fatalf("%q is %+v, want %+v", subject, got, want)
		}
	})
}

// legal checks the rules of NATS for subjects.
func legal(t *rapid.T, g Grammar, f Family, subject string) {
	tokens := 5
	if g.NoTenancy {
		tokens = 3
	}
	if f == FamilyEcho {
		tokens++
	}
	if len(subject) > MaxSubject || strings.ContainsAny(subject, " \t\r\n\x00*>") || strings.Count(subject, ".") != tokens-1 {
		t.Fatalf("%q is not a legal subject", subject)
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" {
			t.Fatalf("%q has an empty token", subject)
		}
	}
}

func TestInvalidUTF8RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if got := unescape(escape(want)); got != want {
			t.Fatalf("%q became %q", want, got)
		}
	})
}

func TestLongIDsAreShortened(t *testing.T) {
	id := strings.Repeat("x", 400)
	subject, err := Grammar{}.Build(Subject{Tenant: "acme", Family: FamilyWorkflow, Name: "order", ID: id})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Grammar{}.Parse(subject)
	if err != nil || !s.Short || !s.Is(id) || s.Is(id+"x") {
		t.Errorf("%q is %+v, %v", subject, s, err)
	}
	again, err := Grammar{}.Build(s)
	if err != nil || again != subject {
		t.Errorf("a parsed short subject builds %q, %v", again, err)
	}
}

func TestLongNamesAreRefused(t *testing.T) {
	_, err := Grammar{}.Build(Subject{Tenant: strings.Repeat("x", 300), Family: FamilyWorkflow, Name: "order", ID: "1"})
	if !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "longer than 255") {
		t.Errorf("got %v", err)
	}
}

func TestTenantsMatch(t *testing.T) {
	tests := []struct {
		tenants Tenants
		yes, no []string
	}{
		{nil, []string{"", "acme"}, nil},
		{Tenants{"acme"}, []string{"acme"}, []string{"", "acme2", "Acme"}},
		{Tenants{"eu-*", "acme"}, []string{"eu-", "eu-west", "acme"}, []string{"eu", "us-eu-"}},
		{Tenants{"*-test"}, []string{"-test", "a-test"}, []string{"a-test2"}},
		{Tenants{"a*b*c"}, []string{"abc", "aXbYc"}, []string{"ac", "acb", "bc"}},
		{Tenants{"ab*ba"}, []string{"abba", "abXba"}, []string{"aba"}},
		{Tenants{"*"}, []string{"", "x"}, nil},
	}
	for _, test := range tests {
		for _, s := range test.yes {
			if !test.tenants.Match(s) {
				t.Errorf("%v does not match %q", test.tenants, s)
			}
		}
		for _, s := range test.no {
			if test.tenants.Match(s) {
				t.Errorf("%v matches %q", test.tenants, s)
			}
		}
	}
}

func TestFilters(t *testing.T) {
	tests := []struct {
		off     bool
		tenants Tenants
		want    string
	}{
		{false, nil, "tenant.*.aggregate.*.*"},
		{false, Tenants{"eu-*"}, "tenant.*.aggregate.*.*"},
		{false, Tenants{"b.c", "acme", "acme"}, "tenant.acme.aggregate.*.* tenant.b%2Ec.aggregate.*.*"},
		{true, Tenants{"acme"}, "aggregate.*.*"},
	}
	for _, test := range tests {
		g := Grammar{NoTenancy: test.off}
		if got := strings.Join(g.Filters(test.tenants, "*", FamilyAggregate), " "); got != test.want {
			t.Errorf("%v: %s, want %s", test.tenants, got, test.want)
		}
	}
}

// FuzzSubject: any names give one subject, which parses to the same names and which no other tenant
// has. Any subject is parsed or refused, and a parsed one builds the same tenant's subject.
func FuzzSubject(f *testing.F) {
	for _, s := range []string{"", "%-", "%~", "a.b", "*", ">", "%2E", "ü", "\xff", "\x00", strings.Repeat("x", 300)} {
		f.Add("acme", "Order", s, s)
		f.Add(s, "Order", "O1", "tenant."+s+".aggregate.Order.O1")
		f.Add("acme", s, "O1", "tenant.acme.effect_result."+s+".c-1")
	}
	f.Fuzz(func(t *testing.T, tenant, name, id, subject string) {
		want := Subject{Tenant: tenant, Family: FamilyWorkflow, Name: name, ID: id}
		if built, err := (Grammar{}).Build(want); err == nil {
			got, err := Grammar{}.Parse(built)
			if err != nil || got.Tenant != tenant || got.Name != name || !got.Is(id) {
				t.Fatalf("%+v is %q, which reads as %+v, %v", want, built, got, err)
			}
			if len(built) > MaxSubject || strings.Count(built, ".") != 4 || strings.ContainsAny(built, "*> \t\r\n\x00") {
				t.Fatalf("%+v is %q", want, built)
			}
			other := want
			if other.Tenant += id; id != "" {
				if theirs, err := (Grammar{}).Build(other); err == nil && theirs == built {
					t.Fatalf("%q and %q have the subject %q", tenant, other.Tenant, built)
				}
			}
		}
		s, err := Grammar{}.Parse(subject)
		if err != nil {
			return
		}
		if built, err := (Grammar{}).Build(s); err == nil {
			if again, err := (Grammar{}).Parse(built); err != nil || again.Tenant != s.Tenant || again.Name != s.Name || !again.Is(s.ID) && again.ID != s.ID {
				t.Fatalf("%q reads as %+v, written as %q, read as %+v, %v", subject, s, built, again, err)
			}
		}
	})
}

func TestTenantsOverlap(t *testing.T) {
	tests := []struct {
		p, q string
		want bool
	}{
		{"acme", "acme", true}, {"acme", "beta", false}, {"a*", "acme", true}, {"acme", "a*", true},
		{"a*", "b*", false}, {"a*", "ab*", true}, {"*a", "*b", false}, {"a*x", "ab*", true}, {"*", "b", true},
	}
	for _, test := range tests {
		if got := (Tenants{test.p}).Overlap(Tenants{test.q}); got != test.want {
			t.Errorf("%s and %s: %v", test.p, test.q, got)
		}
	}
}

func TestCovers(t *testing.T) {
	tests := []struct {
		have, want string
		covered    bool
	}{
		{"a.*.c", "a.*.c", true}, {"a.>", "a.*.c", true}, {">", "a.*.c", true}, {"*.*.*", "a.*.c", true},
		{"a.b.c", "a.*.c", false}, {"a.*", "a.*.c", false}, {"a.*.c.>", "a.*.c", false}, {"a.*.c.d", "a.*.c", false},
	}
	for _, test := range tests {
		if got := Covers([]string{"x", test.have}, test.want); got != test.covered {
			t.Errorf("%s covers %s: %v", test.have, test.want, got)
		}
	}
}

func TestConsumerNamesAreShort(t *testing.T) {
	seen := map[string]bool{}
	for _, effect := range []string{"", "charge", "a_very_long_name_of_an_effect_1", "a_very_long_name_of_an_effect_2", "ä.*>"} {
		name := ConsumerName("effect", effect, "tenants")
		if len(name) >= 32 || seen[name] || strings.ContainsAny(name, ".*> äÄ") {
			t.Errorf("%q is the name for %q", name, effect)
		}
		seen[name] = true
	}
}
