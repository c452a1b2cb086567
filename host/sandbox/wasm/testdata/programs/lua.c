// A Lua script, n times over.
#include <stdio.h>
#include <stdlib.h>

#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

static const char script[] =
	"local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end\n"
	"local t = {}\n"
	"for i = 1, 5000 do t[i] = (i * 7919) % 10007 end\n"
	"table.sort(t)\n"
	"local words = {}\n"
	"for i = 1, 2000 do words[#words + 1] = string.format('%d:%s', t[i], string.rep('x', i % 7)) end\n"
	"local text = table.concat(words, ',')\n"
	"local count = 0\n"
	"for w in string.gmatch(text, '%d+') do count = count + #w end\n"
	"return string.format('%d %d %d %d', fib(20), t[2500], #text, count)\n";

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 1;
	for (int i = 0; i < n; i++) {
		lua_State *L = luaL_newstate();
		luaL_requiref(L, "_G", luaopen_base, 1);
		luaL_requiref(L, "table", luaopen_table, 1);
		luaL_requiref(L, "string", luaopen_string, 1);
		luaL_requiref(L, "math", luaopen_math, 1);
		if (luaL_loadstring(L, script) || lua_pcall(L, 0, 1, 0)) return 1;
		puts(lua_tostring(L, -1));
		lua_close(L);
	}
	return 0;
}
