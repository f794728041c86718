package kv

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"edda/stream/wire"
)

func TestLedgerKeys(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct{ tenant, id, want string }{
		{"acme", "0190f4c2-77aa-7000-8000-000000000001", "acme.0190f4c2-77aa-7000-8000-000000000001"},
		{"", "c", "=.c"}, {"a.b", "c", "a=2Eb.c"}, {"a", "b.c", "a.b=2Ec"}, {"a=", "=", "a=3D.=3D"},
		{"ä", "*>/\x00 ", "=C3=A4.=2A=3E=2F=00=20"},
		{"acme", long, "acme." + ledgerHash(long)}, {long, long, ledgerHash(long) + "." + ledgerHash(long)},
		{long, "c", ledgerHash(long) + "." + ledgerHash("c")},
	}
	for _, test := range tests {
		if got := ledgerKey(test.tenant, test.id); got != test.want {
			t.Errorf("%q, %q: %s, want %s", test.tenant, test.id, got, test.want)
		}
	}
}

func TestLedgerKeysAreValidAndDifferent(t *testing.T) {
	valid := regexp.MustCompile(`^[-_=a-zA-Z0-9]+\.[-_=a-zA-Z0-9]+$`)
	text := rapid.OneOf(
		rapid.SampledFrom([]string{"", "=", "==", "=3D", "a.b", ".", "*", "%-", ledgerHash("a"), strings.Repeat("a", 250), strings.Repeat(".", 80)}),
		rapid.StringOfN(rapid.RuneFrom([]rune("a=.3D-")), 0, 4, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		type command struct{ tenant, id string }
		a := command{text.Draw(t, "tenant"), text.Draw(t, "id")}
		b := command{text.Draw(t, "other tenant"), text.Draw(t, "other id")}
		keyA, keyB := ledgerKey(a.tenant, a.id), ledgerKey(b.tenant, b.id)
		if !valid.MatchString(keyA) || len(ledgerPrefix+keyA) > wire.MaxSubject {
			t.Fatalf("%q of %+v", keyA, a)
		}
		if (keyA == keyB) != (a == b) {
			t.Fatalf("%q is the key of %+v and %+v", keyA, a, b)
		}
	})
}
