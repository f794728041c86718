//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/router"
	"edda/internal/realservers"
)

// inSettings is the context of the settings, which no other is.
const inSettings uint32 = 7

// The tokens of the coordinator's callers, and an actor who may only read.
const (
	adminToken  = "the-token-of-an-admin"
	readerToken = "the-token-of-a-reader"
	heroReader  = 13
)

// heroSettings differ from the defaults wherever a script or a caller can see it.
// Its python is one that everybody may execute.
const heroSettings = `hero:
  api: {tokens: %s}
  runner:
    id: 20
    contexts: [7]
    interpreters: {python: [/usr/bin/python3, "-"], shell: [/bin/sh, -s]}
    timeout: 1s
    output: 1000
    memory: 100663296
    secrets: [PIN]
    sandbox: %v
`

// TestWhatTheHeroRolesAreToldHolds has each setting that guards somebody tried
// through the binary: each part has tests of its own, that it is told is only here.
func TestWhatTheHeroRolesAreToldHolds(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	nodes := h.mesh(2)
	dir := t.TempDir()
	tokens := write(t, dir, "tokens", fmt.Sprintf("%s %d\n%s %d\n", adminToken, heroActor, readerToken, heroReader))
	file := write(t, dir, "edda.yaml", fmt.Sprintf(heroSettings, tokens, os.Geteuid() == 0))
	h.coordinator("--config", file, "--mycelium-port", nodes[0].port())
	h.launched([]string{"EDDA_HERO_MYCELIUM_ENABLED=false"}, h.runnerArgs("--config", file)...).says(`"msg":"started"`)
	h.rpc = h.as(adminToken)
	h.place(inSettings) // without a runner, which registers itself in the contexts that it is told
	for name, test := range map[string]func(*heroWorld, *testing.T){
		"tokens say who calls":               callersHaveTokens,
		"scripts have the limits":            scriptsHaveLimits,
		"messages of other nodes are let in": func(h *heroWorld, t *testing.T) { messagesComeIn(h, t, nodes) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := *h
			world.t = t
			test(&world, t)
		})
	}
}

// as is a client that calls with a token.
func (h *heroWorld) as(token string) *jsonrpc.Client {
	return jsonrpc.NewClient("http://"+h.api, jsonrpc.ClientOptions{Timeout: soon, Token: token})
}

func callersHaveTokens(h *heroWorld, t *testing.T) {
	for token, want := range map[string]int{"": jsonrpc.PermissionDenied, "the-token-of-nobody": jsonrpc.PermissionDenied, readerToken: jsonrpc.PermissionDenied, adminToken: 0} {
		var ignored json.RawMessage
		err := h.as(token).Call(t.Context(), "context.load", object{"id": inSettings, "actor_id": heroActor}, &ignored)
		var said *jsonrpc.Error
		if code := 0; errors.As(err, &said) {
			if code = said.Code; code != want {
				t.Errorf("token %q: %v, want %d", token, err, want)
			}
		} else if err != nil || want != 0 {
			t.Errorf("token %q: %v, want %d", token, err, want)
		}
	}
}

func scriptsHaveLimits(h *heroWorld, t *testing.T) {
	scripts := []struct{ kind, script, says string }{
		{"python", `import os; print("its pin is", os.environ["PIN"])`, "its pin is ***"},
		{"python", `print("x" * 4000)`, "more than 1000 bytes"},
		{"python", `import time; time.sleep(60)`, "ran longer than 1s"},
		{"python", `x = b"x" * (128 << 20); import time; time.sleep(60)`, "more than 100663296 bytes"},
		{"shell", `echo "from the shell"`, "from the shell"},
		{"python", `import os; print("user", os.getuid())`, fmt.Sprint("user ", scriptsRunAs())},
	}
	var ids []int
	var ignored json.RawMessage
	for i, s := range scripts {
		ids = append(ids, 2001+i)
		timeout := 60
		if strings.Contains(s.says, "longer") {
			timeout = 0 // the runner's
		}
		h.call("job.create", object{"context_id": inSettings, "job": object{
			"id": 2001 + i, "caller_id": heroActor, "script": s.script, "script_type": s.kind, "timeout": timeout, "env_vars": object{"PIN": "hunter22"},
		}}, &ignored)
	}
	h.call("flow.create", object{"context_id": inSettings, "flow": object{"id": 33, "caller_id": heroActor, "jobs": ids}}, &ignored)
	h.begin(inSettings, 33)
	f := h.ended(inSettings, 33)
	for i, s := range scripts {
		if said := f.Result[fmt.Sprint(2001+i, ".output")] + f.Result[fmt.Sprint(2001+i, ".error")]; !strings.Contains(said, s.says) {
			t.Errorf("%s: %q, want %q", s.script, said, s.says)
		}
	}
	h.idle(inSettings)
}

// scriptsRunAs is the user of scripts: a sandbox's, where one can be made.
func scriptsRunAs() int {
	if os.Geteuid() == 0 {
		return 65534
	}
	return os.Geteuid()
}

// messagesComeIn has another node send a chat for an actor of ours.
func messagesComeIn(h *heroWorld, t *testing.T, nodes []meshNode) {
	h.must(h.db.PutActor(t.Context(), hero.Actor{ID: 50, PubKey: nodes[1].key}))
	hub := mycelium.NewHub(mycelium.NewRPC(nodes[1].rpc), mycelium.Options{})
	ctx, stop := context.WithTimeout(t.Context(), soon)
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	defer func() { stop(); h.must(<-ended) }()
	request := []byte(`{"jsonrpc":"2.0","id":"chat-1","method":"message.deliver","params":[{"origin":"9/message:50:1",
		"message":{"id":1,"caller_id":50,"to":12,"message_type":"chat","message":"hello"}}]}`)
	reply, err := hub.Call(ctx, mycelium.Peer{PK: nodes[0].key}, router.MessageTopic, request, "chat-1", mycelium.CallOptions{})
	h.must(err)
	if !strings.Contains(string(reply), `"result":true`) {
		t.Errorf("%s", reply)
	}
	m, err := h.db.Message(ctx, inSettings, 50, 1)
	if err != nil || m.Message != "hello" {
		t.Errorf("%+v %v", m, err)
	}
}
