package server

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

func TestADeploymentIsRefusedBeforeTheProcessSeesIt(t *testing.T) {
	f := newFakes()
	f.deploys = Deployed{Revision: 3, Changed: true}
	h := start(t, f, func(o *Options) { o.Cluster = &fakeCluster{} })
	file := func(name string) string { return fmt.Sprintf(`{"name":%q,"content":"c2FnYTogYQo="}`, name) }
	half := fmt.Sprintf(`"content":%q}`, base64.StdEncoding.EncodeToString(make([]byte, MaxDeployment/2+1)))
	for name, tt := range map[string]struct {
		query, body string
		code        int
		want        string
	}{
		"one file":         {"", file("shop/order.yaml"), 200, `{"revision":3,"changed":true}`},
		"none":             {"", "", 422, "array length >= 1"},
		"out of a folder":  {"", file("../order.yaml"), 422, "lead into no other folder"},
		"an absolute path": {"", file("/order.yaml"), 422, "lead into no other folder"},
		"another spelling": {"", file("a//order.yaml"), 422, "lead into no other folder"},
		"a backslash":      {"", file(`a\order.yaml`), 422, "lead into no other folder"},
		"one twice":        {"", file("a.yaml") + "," + file("a.yaml"), 422, "each once"},
		"file and folder":  {"", file("a/b/c.yaml") + "," + file("a"), 422, `there is a file \"a\", so it is no folder`},
		"too many bytes":   {"", `{"name":"a",` + half + `,{"name":"b",` + half, 413, "a revision has at most 1048576"},
		"no reason":        {"?skip_tests=true", file("a.yaml"), 422, "a deployment without tests"},
		"skew, no reason":  {"?accept_skew=true", file("a.yaml"), 422, "with a skew of shards, needs a reason"},
	} {
		t.Run(name, func(t *testing.T) {
			f.deployed = nil
			code, body := call(t, h, "POST", "/cluster/manifests"+tt.query, `{"files":[`+tt.body+`]}`)
			if code != tt.code || !strings.Contains(body, tt.want) || (code == 200) != (len(f.deployed) == 1) {
				t.Errorf("%d %s, want %d %s; %d came through", code, body, tt.code, tt.want, len(f.deployed))
			}
		})
	}
}

func TestTheResultOfADeploymentIsShown(t *testing.T) {
	f := newFakes()
	h := start(t, f, func(o *Options) { o.Cluster = &fakeCluster{} })
	const one = `{"files":[{"name":"a.yaml","content":"c2FnYTogYQo="}]}`
	f.deploys = Deployed{Revision: 2, Problems: []Problem{{File: "a.yaml", Line: 3, Column: 5, Message: "no such word"}, {File: "a.yaml", Warning: true, Message: "it never ends"}}}
	if code, body := call(t, h, "POST", "/cluster/manifests", one); code != 422 || !strings.Contains(body, "nothing changed") || !strings.Contains(body, `"location":"a.yaml:3:5"`) {
		t.Errorf("%d %s", code, body)
	}
	f.deploys.Problems = f.deploys.Problems[1:]
	if code, body := call(t, h, "POST", "/cluster/manifests", one, "x-edda-by: ann"); code != 200 || !strings.Contains(body, "it never ends") || f.deployed[1].By != "ann" || string(f.deployed[1].Body.Files[0].Content) != "saga: a\n" {
		t.Errorf("%d %s, %+v", code, body, f.deployed[1])
	}
	f.revision = Revision{Revision: 2, By: "ann", Files: []ManifestFile{{"a.yaml", []byte("saga: a\n")}}}
	if code, body := call(t, h, "GET", "/cluster/manifests", ""); code != 200 || !strings.Contains(body, `{"name":"a.yaml","content":"c2FnYTogYQo="}`) {
		t.Errorf("%d %s", code, body)
	}
	f.err = ErrNoCluster
	for _, call1 := range []string{"GET", "POST"} {
		if code, body := call(t, h, call1, "/cluster/manifests", map[string]string{"POST": one}[call1]); code != 404 || !strings.Contains(body, "in no cluster") {
			t.Errorf("%s %d %s", call1, code, body)
		}
	}
}
