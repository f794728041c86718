//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"edda/access"
	"edda/hero/jsonrpc"
	"edda/internal/realservers"
)

// The API's tokens do not open the coordinator, nor the coordinator's the API: a
// process that has both has two doors. A tenant's token does not see the flows,
// which are instances of a tenant of their own, and an actor not another's context.
func TestTheTwoDoorsOfACoordinatorAreApart(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	dir := t.TempDir()
	mine, theirs, api, flows := access.NewToken(), access.NewToken(), access.NewToken(), access.NewToken()
	actors := write(t, dir, "actors", fmt.Sprintf("%s %d\n%s 99\n", access.Hash(mine), heroActor, access.Hash(theirs)))
	var book []byte
	for name, e := range map[string]access.Entry{"api": {Tenants: []string{"acme"}, Hash: access.Hash(api)}, "flows": {Tenants: []string{"hero"}, Hash: access.Hash(flows)}} {
		e.Name, e.Role = name, access.Admin
		var err error
		if book, err = access.Add(book, e); err != nil {
			t.Fatal(err)
		}
	}
	config := write(t, dir, "edda.yaml", "hero: {api: {tokens: "+actors+"}, mycelium: {enabled: false}}\n")
	c := h.coordinator("--config", config, "--tokens", write(t, dir, "tokens.yaml", string(book)))
	if said := c.err.String(); strings.Contains(said, "plain text") {
		t.Errorf("hashes are warned of: %s", said)
	}
	h.rpc = h.as(mine)
	h.place(inSettings)
	for name, tt := range map[string]struct {
		token string
		opens bool
	}{
		"its own": {mine, true}, "another actor's": {theirs, false}, "the API's": {api, false}, "a hash": {access.Hash(mine), false}, "none": {"", false},
	} {
		var out json.RawMessage
		err := h.as(tt.token).Call(t.Context(), "context.load", object{"id": inSettings}, &out)
		var said *jsonrpc.Error
		if tt.opens != (err == nil) || err != nil && (!errors.As(err, &said) || said.Code != jsonrpc.PermissionDenied) {
			t.Errorf("the coordinator with %s: %v %s", name, err, out)
		}
	}
	for name, tt := range map[string]struct {
		token, tenant string
		want          int
	}{
		"an actor's": {mine, "hero", 401}, "its hash": {access.Hash(mine), "hero", 401}, "another tenant's": {api, "hero", 403},
		"the API's, of the flows": {flows, "hero", 200}, "the flows', of another": {flows, "acme", 403},
	} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+c.addr+"/v1/instances", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tt.token)
		req.Header.Set("x-tenant-id", tt.tenant)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("the API with %s: %d, want %d", name, resp.StatusCode, tt.want)
		}
	}
}
