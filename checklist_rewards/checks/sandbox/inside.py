"""The program that every guest runs. It is sent to the guest as text or bytecode, so it imports nothing of this
package, and only modules that Python loads at its start: any other import takes milliseconds in every guest.

A guest plays one of three roles. `program` runs a checklist's program on a text. `code` runs the code under test and
then does what the tests ask of it. `tests` runs the tests, whose functions under test are in the other guest.

A message is eight bytes of length and a payload. What tests and code say to each other begins with `PASS_ON`, and the
host hands it over unread; other messages are for the host.
"""

import builtins
import io
import posix
import sys

CHANNEL = 0
"""The file descriptor of the host, the last argument."""
RAN, FAILED, BROKEN, PASS_ON = b"r", b"f", b"b", b"p"
"""How a message begins: the sources ran to their end; they failed; the tests cannot be run here, whatever the code
does; for the other guest."""
SHOWN = 300
"""Characters of an error that are kept."""
OF_THE_CODE = "raised by the code under test"
CHANGEABLE = (list, dict, set, bytearray)
COLLECTIONS: dict = {b"l": list, b"t": tuple, b"e": set, b"z": frozenset}
BUILTIN_TYPES = {kind: name for name, kind in vars(builtins).items() if isinstance(kind, type) and name[0] != "_"}
MADE = dict.fromkeys(("complex", "range", "bytearray"), "builtins") | {"Decimal": "decimal", "Fraction": "fractions"}
MADE |= dict.fromkeys(("date", "time", "datetime", "timedelta", "timezone"), "datetime")
"""Other types whose instances are data, and the modules of these types."""


def main():
    """Play the role that the first message names, and report how it ended."""
    global CHANNEL
    CHANNEL = int(sys.argv.pop())
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # Python defines them only where people type
    sys.stdin = io.StringIO()
    play = {"program": run_program, "code": serve_code, "tests": run_tests}[text_of(receive())]
    try:
        report = play()
    except MemoryError:
        report = FAILED + b"out of memory"
    except RecursionError:
        report = FAILED + b"out of stack"
    except BaseException as error:
        report = FAILED + told(error)
    send(report)


def run_program():
    """Run a program and report the value of its `holds(text)`."""
    names = run(text_of(receive()))
    value = names["holds"](text_of(receive()))
    plain = value is None or isinstance(value, (bool, int, float))
    return RAN + repr(value if plain else type(value).__name__).encode()


def serve_code():
    """Run the code under test, report that it ran, and answer the tests until the host ends this guest."""
    end = CodeEnd(run(text_of(receive())))
    send(RAN)
    while True:
        _, *request = end.heard()
        end.answer(*request)


def run_tests():
    """Run tests. Names that they do not define are those of the code."""
    try:
        code = compile(text_of(receive()), "<tests>", "exec")
    except (SyntaxError, ValueError) as error:
        return BROKEN + told(error)
    try:
        run(code, TestsEnd().defined(tuple(names_in(code))))
    except SystemExit as error:  # as unittest.main() ends
        return FAILED + told(error) if error.code else RAN
    except (ImportError, Unsendable) as error:
        return (FAILED if OF_THE_CODE in getattr(error, "__notes__", ()) else BROKEN) + told(error)
    return RAN


def run(source, names=()):
    """Execute a source as the main module, in which some names are defined already. Returns all names."""
    module = sys.modules["__main__"] = type(sys)("__main__")
    module.__dict__.update(names)
    exec(compile(source, "<code>", "exec") if isinstance(source, str) else source, module.__dict__)
    return module.__dict__


def names_in(code):
    """The names that a code object mentions, without Python's own."""
    names = {name for name in code.co_names if not hasattr(builtins, name) and not name.startswith("__")}
    return names.union(*(names_in(inner) for inner in code.co_consts if isinstance(inner, type(code))))


def told(error):
    """An error in one line."""
    return f"{type(error).__name__}: {error}"[:SHOWN].encode("utf-8", "replace")


def text_of(payload):
    """The text that a payload is."""
    return payload.decode("utf-8", "surrogatepass")


def receive():
    """The next message."""
    return read(int.from_bytes(read(8), "big"))


def read(size):
    """Bytes from the host. Ends the guest if there will be none."""
    parts = []
    while size:
        part = posix.read(CHANNEL, size)
        if not part:
            posix._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send(payload):
    """Send a message."""
    left = memoryview(len(payload).to_bytes(8, "big") + payload)
    while left:
        left = left[posix.write(CHANNEL, left) :]


class Unsendable(TypeError):
    """The tests hand something to the code that is neither data nor a function."""


class End:
    """One end of the talk between tests and code: asks the other end to do something, and does what that asks for.

    Data goes by value, as plain Python data. Everything else stays where it is and is a [`Remote`] at the other end.
    """

    def __init__(self):
        self.mine, self.numbers, self.remotes = [], {}, {}
        self.data, self.at = b"", 0

    def ask(self, operation, /, *arguments, **keywords):
        """Have something done at the other end. Raises what that raises."""
        send(PASS_ON + self.encode(["do", operation, arguments, keywords]))
        while True:
            kind, *message = self.heard()
            if kind == "do":
                self.answer(*message)
            elif kind == "raised":
                raise carried(operation, *message)
            else:
                value, changed = message
                for place, contents in changed.items() if operation == "call" else ():
                    refill(arguments[place], contents)
                return value

    def heard(self):
        """The next message. What cannot be understood must not raise an error that has a meaning in the tests."""
        try:
            kind, *message = self.decode(receive())
            if len(message) == {"do": 3, "done": 2, "raised": 2}[kind]:
                return kind, *message
        except Exception:
            pass
        raise RuntimeError("a message that cannot be understood")

    def answer(self, operation, arguments, keywords):
        """Do what the other end asks for, and send what came of it: a value and changed arguments, or an error."""
        try:
            before = {i: self.encode(value) for i, value in enumerate(arguments) if isinstance(value, CHANGEABLE)}
            value = self.do(operation, *arguments, **keywords)
            changed = {i: arguments[i] for i, old in before.items() if self.encode(arguments[i]) != old}
            reply = self.encode(["done", value, changed])
        except Exception as error:
            reply = self.encode(["raised", [kind.__name__ for kind in type(error).__mro__], str(error)[:SHOWN]])
        send(PASS_ON + reply)

    def do(self, operation, /, *arguments, **keywords):
        """What this end does for the other one."""
        raise NotImplementedError

    def number(self, value):
        """The number by which the other end knows an object of this one."""
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.mine)
            self.mine.append(value)
        return self.numbers[id(value)]

    def encode(self, value):
        """A value as bytes."""
        parts: list[bytes] = []
        self.put(value, parts.append)
        return b"".join(parts)

    def put(self, value, write):
        """Write a value: a letter, a number or a name, a semicolon, and what belongs to it."""
        name = type(value).__name__
        if value is None or value is True or value is False:
            write(b"c%b;" % repr(value).encode())
        elif isinstance(value, int):
            write(b"i%x;" % value)
        elif isinstance(value, float):
            write(b"f%b;" % float.hex(value).encode())
        elif isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            write(b"s%d;%b" % (len(data), data))
        elif isinstance(value, bytes):
            write(b"b%d;%b" % (len(value), value))
        elif isinstance(value, dict):
            write(b"d%d;" % len(value))
            for pair in value.items():
                self.put(pair, write)
        elif isinstance(value, (list, tuple, set, frozenset)):
            write(b"%b%d;" % (next(key for key, kind in COLLECTIONS.items() if isinstance(value, kind)), len(value)))
            for part in value:
                self.put(part, write)
        elif MADE.get(name) == type(value).__module__:
            write(b"m%b;" % name.encode())
            self.put(value.__getnewargs__() if name == "complex" else value.__reduce_ex__(3)[1], write)
        elif type(value) is Remote:
            write(b"y%d;" % value._remote_number)
        elif type(value) is type and (known := BUILTIN_TYPES.get(value)):
            write(b"k%b;" % known.encode())
        else:
            write(b"o%d;" % self.number(value))

    def decode(self, data):
        """The value that [`encode`] has written."""
        self.data, self.at = data, 0
        value = self.take()
        if self.at != len(data):
            raise ValueError("more than one value")
        return value

    def take(self):
        """Read a value."""
        letter, word = self.cut(1), self.cut(self.data.index(b";", self.at) - self.at).decode()
        self.at += 1
        if letter == b"c":
            return {"None": None, "True": True, "False": False}[word]
        if letter == b"i":
            return int(word, 16)
        if letter == b"f":
            return float.fromhex(word)
        if letter == b"s":
            return text_of(self.cut(int(word)))
        if letter == b"b":
            return self.cut(int(word))
        if letter == b"d":
            return dict(self.take() for _ in range(int(word)))
        if letter == b"m":
            parts = self.take()
            if any(type(part) is Remote for part in parts):
                raise ValueError(f"{word} of an object that is no data")
            return getattr(__import__(MADE[word]), word)(*parts)
        if letter == b"k":
            return {name: kind for kind, name in BUILTIN_TYPES.items()}[word]
        if letter == b"y":
            return self.mine[int(word)]
        if letter == b"o":
            return self.remotes.setdefault(int(word), Remote(self, int(word)))
        return COLLECTIONS[letter]([self.take() for _ in range(int(word))])

    def cut(self, size):
        """The next bytes."""
        self.at += size
        return self.data[self.at - size : self.at]


class CodeEnd(End):
    """The end of the code under test. It does with its objects whatever the tests ask for."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def do(self, operation, /, *arguments, **keywords):
        """One of `OPERATIONS`, or "defined"."""
        return {**OPERATIONS, "defined": self.defined}[operation](*arguments, **keywords)

    def defined(self, names):
        """The values of those names that the code defines; of modules, their names."""
        values = {name: self.names[name] for name in names if name in self.names}
        modules = {name: value.__name__ for name, value in values.items() if isinstance(value, type(sys))}
        return {name: value for name, value in values.items() if name not in modules}, modules


class TestsEnd(End):
    """The end of the tests. The code may call functions that the tests have handed to it, and nothing else: if it
    could make objects here, they would answer comparisons as the code likes."""

    def do(self, operation, function, /, *arguments, **keywords):
        """Call a function that was handed over."""
        if operation != "call" or not any(function is known for known in self.mine):
            raise TypeError("only functions that the tests hand over can be called")
        return function(*arguments, **keywords)

    def number(self, value):
        """See [`End`]."""
        if not callable(value):
            raise Unsendable(f"a {type(value).__name__} is handed to the code; only data and functions can be")
        return super().number(value)

    def defined(self, names):
        """What the code defines of these names. A module that it has imported is imported here anew."""
        values, modules = self.ask("defined", names)
        for name, module in modules.items():
            try:
                values[name] = __import__(module, fromlist=["x"])
            except Exception:
                continue
        return {name: values[name] for name in names if name in values}


class Remote:
    """An object at the other end. It equals only itself and has no order and no arithmetic, because the code under
    test would answer those."""

    __slots__ = ("_remote_end", "_remote_number")
    _remote_end: End
    _remote_number: int

    def __init__(self, end, number):
        object.__setattr__(self, "_remote_end", end)
        object.__setattr__(self, "_remote_number", number)

    def __call__(self, /, *arguments, **keywords):
        """Call it there."""
        return self._remote_end.ask("call", self, *arguments, **keywords)

    def __bool__(self):
        return True


def asking(operation):
    """A method of [`Remote`] that has an operation done at the other end."""
    return lambda self, *arguments: self._remote_end.ask(operation, self, *arguments)


OPERATIONS: dict = {
    "call": lambda function, /, *arguments, **keywords: function(*arguments, **keywords),
    "getattr": getattr,
    "setattr": setattr,
    "getitem": lambda value, key: value[key],
    "setitem": lambda value, key, new: value.__setitem__(key, new),
    "len": len,
    "iter": iter,
    "next": next,
    "str": str,
    "repr": repr,
    "instancecheck": lambda kind, value: isinstance(value, kind),
}
for name in OPERATIONS.keys() - {"call"}:
    setattr(Remote, f"__{name}__", asking(name))


def refill(collection, contents):
    """Give a list, set, dict or bytearray other contents."""
    collection.clear()
    collection.extend(contents) if isinstance(collection, (list, bytearray)) else collection.update(contents)


def carried(operation, lineage, message):
    """The error here for one at the other end: the nearest kind that Python itself has. No StopIteration, except where
    it belongs: it would end loops of the tests early."""
    error: Exception = RuntimeError(message)
    for kind in (vars(builtins).get(name) for name in lineage):
        stops = kind in (StopIteration, StopAsyncIteration)
        if isinstance(kind, type) and issubclass(kind, Exception) and (operation == "next" or not stops):
            try:
                error = kind(message)
                break
            except TypeError:
                continue  # a kind that takes more than a message
    error.add_note(OF_THE_CODE)
    return error


if __name__ == "__main__":
    main()
