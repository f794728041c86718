import json
import os

print(json.dumps({"words": len(os.environ["TEXT"].split())}))
