package httpeffect

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"edda"
	"edda/effects"
	"edda/effects/dial"
)

func TestPrivateAddressesAreRefused(t *testing.T) {
	p := provider(t, dial.Options{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[fd00::1]"} {
		_, err := p.Call(t.Context(), effects.Call{Config: map[string]any{"url": "http://" + host + ":1/"}})
		if !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestLoopbackAloneIsAllowedForDev(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, host := range []string{s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)} {
		if _, err := p.Call(t.Context(), effects.Call{Config: map[string]any{"url": host}}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := p.Call(t.Context(), effects.Call{Config: map[string]any{"url": "http://10.0.0.1/"}}); !errors.Is(err, edda.Permanent) {
		t.Errorf("a private address: %v", err)
	}
}

func TestListedHostsMayBePrivate(t *testing.T) {
	s := open(t)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		word    string
		allowed bool
	}{{"127.0.0.1", true}, {u.Host, true}, {"127.0.0.1:1", false}, {"pay.example", false}, {"*.0.0.1", true}, {"127.0.0.0/8", true}, {"10.0.0.0/8", false}} {
		_, err := provider(t, dial.Options{Allow: []string{tt.word}}).Call(t.Context(), effects.Call{Config: map[string]any{"url": s.URL}})
		if (err == nil) != tt.allowed || err != nil && !errors.Is(err, edda.Permanent) {
			t.Errorf("%s: %v", tt.word, err)
		}
	}
}
