package outbox

import (
	"testing"

	"edda/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
