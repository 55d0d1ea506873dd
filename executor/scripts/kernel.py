import sys
sys.path = [entry for entry in sys.path if entry]
import json
from ipykernel import iostream, kernelapp
from jupyter_client.session import Session
begin = Session.__init__
def begin_leniently(self, **more):
    begin(self, **more)
    strict = self.pack
    def pack(message):
        try:
            return strict(message)
        except UnicodeError:
            return json.dumps(message, default=str, ensure_ascii=False).encode('utf-8', 'replace')
    self.pack = pack
Session.__init__ = begin_leniently
defaults = iostream.OutStream.__init__.__kwdefaults__ or {}
if 'watchfd' in defaults:
    defaults['watchfd'] = False
iostream.OutStream.fileno = lambda self: 2 if self.name == 'stderr' else 1
kernelapp.launch_new_instance()
