package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Mocks says how effects are answered in a process that calls none, as edda dev --mock. Its
// methods are safe for concurrent use.
type Mocks interface {
	// Mocks lists the answers of the effects, by name.
	Mocks() []Mock
	// SetMock has an effect give another answer.
	SetMock(effect string, a MockAnswer) error
}

// MockAnswer is how an effect is answered.
type MockAnswer struct {
	Answer string          `json:"answer" enum:"ok,failed,timeout,down" doc:"down: not reached, so that it is tried again"`
	Code   string          `json:"code,omitempty" doc:"of failed" maxLength:"100"`
	Result json.RawMessage `json:"result,omitempty" doc:"of ok; as the tests say where unsaid"`
	Times  int             `json:"times,omitempty" minimum:"0" doc:"how many calls have this answer; 0: all"`
}

// Mock is the answer of one effect.
type Mock struct {
	Effect string `json:"effect"`
	MockAnswer
	From string `json:"from" doc:"where the answer is from: a test, or an order"`
}

// MockList lists the answers of all effects.
type MockList struct {
	Mocks []Mock `json:"mocks"`
}

type mockInput struct {
	Effect string `path:"effect"`
	Body   MockAnswer
}

func (s *Server) mocks() {
	m := s.options.Mocks
	if m == nil {
		for _, pattern := range []string{"GET /admin/mock", "POST /admin/mock/{effect}"} {
			s.routes.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
				problem(w, http.StatusConflict, "this process calls the real services: only edda dev --mock answers in their place")
			})
		}
		return
	}
	list := func() *body[MockList] { return &body[MockList]{MockList{m.Mocks()}} }
	huma.Get(s.api, "/admin/mock", func(context.Context, *struct{}) (*body[MockList], error) { return list(), nil }, summary("List how mocked effects are answered", "process"))
	huma.Post(s.api, "/admin/mock/{effect}", func(_ context.Context, in *mockInput) (*body[MockList], error) {
		if err := m.SetMock(in.Effect, in.Body); err != nil {
			return nil, huma.Error422UnprocessableEntity(err.Error())
		}
		return list(), nil
	}, summary("Have a mocked effect give another answer", "process"))
}
