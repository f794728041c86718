package mycelium

import (
	"strings"
	"testing"
)

func TestParseDestination(t *testing.T) {
	key := strings.Repeat("0a", 32)
	tests := []struct {
		in    string
		want  Peer
		topic string
	}{
		{"mycelium://" + key, Peer{PK: key}, ""},
		{"mycelium://" + strings.ToUpper(key), Peer{PK: key}, ""},
		{key, Peer{PK: key}, ""},
		{"mycelium://" + key + "?topic=supervisor.rpc", Peer{PK: key}, "supervisor.rpc"},
		{"mycelium://" + key + "/?topic=a%20b", Peer{PK: key}, "a b"},
		{"mycelium://" + key + "?topic=", Peer{PK: key}, ""},
		{"mycelium://" + key + "?", Peer{PK: key}, ""},
		{"mycelium://[54b:83ab:6cb5:7b38:44ae:cd14:53f3:a907]", Peer{IP: "54b:83ab:6cb5:7b38:44ae:cd14:53f3:a907"}, ""},
		{"mycelium://54b:83ab:6cb5:7b38::1?topic=t", Peer{IP: "54b:83ab:6cb5:7b38::1"}, "t"},
		{"54B:0::1", Peer{IP: "54b::1"}, ""},
		{"mycelium://" + key + "?topic=" + strings.Repeat("t", 255), Peer{PK: key}, strings.Repeat("t", 255)},
	}
	for _, tt := range tests {
		got, topic, err := ParseDestination(tt.in)
		if err != nil || got != tt.want || topic != tt.topic {
			t.Errorf("%s: %+v, %q, %v", tt.in, got, topic, err)
		}
		if again, _, err := ParseDestination(got.String()); err != nil || again != got {
			t.Errorf("%s: %+v, %v", got, again, err)
		}
	}
}

func TestDestinationsThatAreNone(t *testing.T) {
	key := strings.Repeat("0a", 32)
	for in, want := range map[string]string{
		"":                                       "want a key",
		"mycelium://":                            "want a key",
		"mycelium://here":                        "want a key",
		"http://" + key:                          "want a key",
		"mycelium://" + key[1:]:                  "want a key",
		"mycelium://" + strings.Repeat("z", 64):  "64 hexadecimal digits",
		"mycelium://" + key + ":80":              "want a key",
		"mycelium://" + key + "/x":               "want a key",
		"mycelium://[400::1]:80":                 "no port",
		"mycelium://[400::1":                     "no port",
		"mycelium://127.0.0.1":                   "want an IPv6 address",
		"mycelium://[::ffff:127.0.0.1]":          "want an IPv6 address",
		"mycelium://[fe80::1%eth0]":              "want an IPv6 address",
		"mycelium://" + key + "?x=1":             `not "x"`,
		"mycelium://" + key + "?topic=a&topic=b": `not "topic"`,
		"mycelium://" + key + "?topic=%zz":       "invalid URL escape",
		"mycelium://" + key + "?topic=" + strings.Repeat("t", 256): "256 bytes",
	} {
		got, _, err := ParseDestination(in)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "is no Mycelium destination") {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
}

func TestWhoseAMessageIs(t *testing.T) {
	key := strings.Repeat("0a", 32)
	m := Message{SrcPK: strings.ToUpper(key), SrcIP: "54b:1:2:3::7"}
	for d, want := range map[Peer]bool{
		{PK: key}:                      true,
		{PK: strings.Repeat("0b", 32)}: false,
		{IP: "54b:1:2:3::7"}:           true,
		{IP: "54b:1:2:3:4:5:6:7"}:      true,
		{IP: "54b:1:2:4::7"}:           false,
		{IP: "nowhere"}:                false,
		{}:                             false,
	} {
		if d.Sent(m) != want {
			t.Errorf("%+v: %v", d, !want)
		}
	}
	if (Peer{IP: "400::1"}).Sent(Message{SrcPK: key}) {
		t.Error("a message without an address")
	}
}

func FuzzParseDestination(f *testing.F) {
	f.Add("mycelium://[400::1]?topic=a")
	f.Add(strings.Repeat("0a", 32))
	f.Fuzz(func(t *testing.T, s string) {
		d, topic, err := ParseDestination(s)
		if err != nil {
			return
		}
		if (d.IP == "") == (d.PK == "") || len(topic) > MaxTopic {
			t.Fatalf("%q: %+v %q", s, d, topic)
		}
		if again, _, err := ParseDestination(d.String()); err != nil || again != d {
			t.Fatalf("%q: %+v, then %+v, %v", s, d, again, err)
		}
	})
}
