package server

import (
	"strings"
	"testing"
)

func TestAMockIsOrderedOnlyWhereThereIsOne(t *testing.T) {
	f := newFakes()
	h := start(t, f)
	if code, body := call(t, h, "POST", "/admin/mock/ship", `{"answer":"failed","code":"sold_out","times":2}`); code != 200 || len(f.mocked) != 1 || f.mocked[0].Code != "sold_out" {
		t.Errorf("%d %s %v", code, body, f.mocked)
	}
	for _, wrong := range []string{`{"answer":"perhaps"}`, `{"answer":"failed","times":-1}`, `{}`} {
		if code, body := call(t, h, "POST", "/admin/mock/ship", wrong); code != 422 {
			t.Errorf("%s: %d %s", wrong, code, body)
		}
	}
	if code, body := call(t, h, "POST", "/admin/mock/shop", `{"answer":"ok"}`); code != 422 || !strings.Contains(body, "there is no effect shop") {
		t.Errorf("%d %s", code, body)
	}
	real := start(t, newFakes(), func(o *Options) { o.Mocks = nil })
	for _, method := range []string{"GET /admin/mock", "POST /admin/mock/ship"} {
		verb, path, _ := strings.Cut(method, " ")
		if code, body := call(t, real, verb, path, `{"answer":"ok"}`); code != 409 || !strings.Contains(body, "edda dev --mock") {
			t.Errorf("%s: %d %s", method, code, body)
		}
	}
}
