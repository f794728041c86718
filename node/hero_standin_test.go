package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"edda/hero/jsonrpc"
)

// standInAt runs a stand-in of one node until the test ends.
func standInAt(t *testing.T) *StandIn {
	t.Helper()
	s, err := NewStandIn(StandInNode{Name: "edda", RPC: "127.0.0.1:0", REST: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestThePagesOfOthersReachNoStandIn(t *testing.T) {
	s := standInAt(t)
	const pop = "/api/v1/messages"
	for name, tt := range map[string]struct {
		host, header, value string
		want                int
	}{
		"a program":                     {"", "", "", 204},
		"by the name of this machine":   {"localhost:8989", "", "", 204},
		"a name that points here":       {"evil.example:8989", "", "", 421},
		"a page that fetches":           {"", "Sec-Fetch-Site", "cross-site", 403},
		"a page of a neighbour":         {"", "Sec-Fetch-Site", "same-site", 403},
		"a page, in an old browser":     {"", "Origin", "http://evil.example", 403},
		"a page that has no origin":     {"", "Origin", "null", 403},
		"who typed it into his browser": {"", "Sec-Fetch-Site", "none", 204},
	} {
		for i, path := range []string{"/", pop} { // the JSON-RPC and the REST address
			method, want := "GET", tt.want
			if i == 0 && want == 204 {
				want = 405 // it takes POSTs alone, from whom it answers
			}
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.servers[i].Addr()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = tt.host
			if tt.header != "" {
				r.Header.Set(tt.header, tt.value)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s at %s: %d, want %d", name, path, resp.StatusCode, want)
			}
		}
	}
}

func TestTheStandInTellsWhoItsNodesAre(t *testing.T) {
	s := standInAt(t)
	n := s.Node("edda")
	rpc, rest := jsonrpc.NewClient("http://"+s.servers[0].Addr(), jsonrpc.ClientOptions{}), "http://"+s.servers[1].Addr()+"/api/v1/"
	var info map[string]string
	if err := rpc.Call(t.Context(), "getInfo", nil, &info); err != nil || info["nodePubkey"] != n.Key() || !strings.HasSuffix(info["nodeSubnet"], "::/64") || len(info) != 2 {
		t.Errorf("getInfo: %v %v", info, err)
	}
	for _, params := range []any{[]string{n.IP()}, map[string]string{"ip": n.IP()}} {
		var key string
		if err := rpc.Call(t.Context(), "getPublicKeyFromIp", params, &key); err != nil || key != n.Key() {
			t.Errorf("getPublicKeyFromIp %v: %q %v", params, key, err)
		}
	}
	for ip, code := range map[string]int{"nowhere": -32007, "": -32007, "400::1": -32008, "127.0.0.1": -32008} {
		var e *jsonrpc.Error
		if err := rpc.Call(t.Context(), "getPublicKeyFromIp", []string{ip}, nil); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%q: %v, want %d", ip, err, code)
		}
	}
	for path, want := range map[string]struct {
		status int
		name   string
	}{"admin": {200, "nodePubkey"}, "pubkey/" + n.IP(): {200, "publicKey"}, "pubkey/400::1": {404, ""}, "pubkey/nowhere": {400, ""}} {
		r, err := http.Get(rest + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		var got map[string]string
		_ = json.Unmarshal(text, &got)
		if r.StatusCode != want.status || err != nil || want.name != "" && got[want.name] != n.Key() {
			t.Errorf("%s: %d %s %v", path, r.StatusCode, text, err)
		}
	}
}
