package wire

import (
	"strings"
	"testing"
)

// FuzzSubject: any names make one subject that reads back as they were and that
// no other tenant's make; any subject is read or refused, and what is read is
// written again as the same tenant's.
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
