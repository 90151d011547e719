"""What Redis does in one step: Lua, sent whole with EVAL.

Rule 1 (S6): whatever could lose an entry or keep it twice, if a process or a connection ended in between, is
        one script. An XADD comes before the XACK or XDEL it belongs to: a script that fails has changed
        nothing.
Rule 2: a verdict is carried out only for an entry that is still ours: pending, with our name and the delivery
        count that we gave it. Otherwise the script says so: 0 when it is not pending, -1 when another has it.
Rule 3: scripts are rare (an acknowledged message needs none), so they are sent with their text each time: no
        SCRIPT LOAD, and a restarted server knows them.
"""

from __future__ import annotations

from typing import Final

LOOK_BACK: Final = 1000  # dead letters to look through; others may have added some meanwhile

# KEYS: stream … ARGV: group, consumer, id, count …
# What is still in the stream and not pending was settled. An entry that was trimmed, and that nobody knows of
# any more, is still ours: we alone have its contents. It may be that this script was asked before, and only
# its answer lost; so what it writes must not be written twice.
_MINE: Final = """
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
local there = #redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3]) > 0
if #pending == 0 then
  if there then return 0 end
elseif pending[1][2] ~= ARGV[2] or pending[1][4] ~= tonumber(ARGV[4]) then
  return -1
end
"""

# Whether the fields from ARGV[first] on are those of one of the newest entries of a stream.
_IS_AMONG: Final = """
local function is_among(stream, newest, first)
  if newest == 0 then return false end
  for _, entry in ipairs(redis.call('XREVRANGE', stream, '+', '-', 'COUNT', newest)) do
    local same = #entry[2] == #ARGV - first + 1
    for i = 1, #entry[2] do same = same and entry[2][i] == ARGV[first + i - 1] end
    if same then return true end
  end
  return false
end
"""

# KEYS: stream, dead letters. ARGV: as above, how many to look through (0: it was not asked before), field,
# value …
DEAD_LETTER: Final = (
    _MINE
    + _IS_AMONG
    + """
if #pending > 0 or not is_among(KEYS[2], tonumber(ARGV[5]), 6) then
  redis.call('XADD', KEYS[2], '*', unpack(ARGV, 6))
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
)

# KEYS: stream, waiting entries. ARGV: as above, milliseconds, field, value …
WAIT: Final = (
    _MINE
    + """
local now = redis.call('TIME')
local due = now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[5]
redis.call('ZADD', KEYS[2], 'NX', due, cmsgpack.pack({ARGV[3], {unpack(ARGV, 6)}}))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
)

# KEYS: stream. ARGV: as above, whether it was asked before and never answered (0, 1), the new count.
# Returns 2 for one that was trimmed: XCLAIM would forget it, so it keeps its count.
TRY_AGAIN: Final = """
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
local there = #redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3]) > 0
if #pending == 0 then
  if there then return 0 end
elseif pending[1][2] ~= ARGV[2] then
  return -1
elseif pending[1][4] == tonumber(ARGV[6]) and ARGV[5] == '1' then
  return 1
elseif pending[1][4] ~= tonumber(ARGV[4]) then
  return -1
end
if not there then return 2 end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'RETRYCOUNT', ARGV[6], 'JUSTID')
return 1
"""

# Give entries back as they came, free for whoever looks next. KEYS: stream.
# ARGV: group, consumer, idle milliseconds, id, count, the count it goes back with, id …
# Returns the ids of those that were trimmed: only we have their contents.
GIVE_BACK: Final = """
local trimmed = {}
for i = 4, #ARGV, 3 do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  local ours = #pending > 0 and pending[1][2] == ARGV[2] and pending[1][4] == tonumber(ARGV[i + 1])
  if #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then
    if ours or #pending == 0 then trimmed[#trimmed + 1] = ARGV[i] end
  elseif ours then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i],
               'IDLE', ARGV[3], 'RETRYCOUNT', ARGV[i + 2], 'JUSTID')
  end
end
return trimmed
"""

# Put an entry that was trimmed on the stream again. KEYS: stream. ARGV: group, id, field, value …
RESTORE: Final = """
redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return 1
"""

# Say that these are in work, and that the name is in use. KEYS: stream, lease.
# ARGV: group, consumer, token, milliseconds, id, count, id …
# Returns the ids that are no longer ours, and those that were trimmed.
KEEP_FRESH: Final = """
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[3] then return redis.error_reply('TAKEN another process uses this name') end
if holder then
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
else
  redis.pcall('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])  -- a server without memory takes no new key
end
local gone, trimmed = {}, {}
for i = 5, #ARGV, 2 do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  local there = #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) > 0
  local ours = #pending > 0 and pending[1][2] == ARGV[2] and pending[1][4] == tonumber(ARGV[i + 1])
  if ours and there then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
  elseif not there and (ours or #pending == 0) then
    trimmed[#trimmed + 1] = ARGV[i]  -- XCLAIM would forget it
  else
    gone[#gone + 1] = ARGV[i]
  end
end
return {gone, trimmed}
"""

# What a list of pending ids holds; those whose entry was trimmed are gone, unless we have it in memory.
_CONTENTS: Final = """
local function contents(ids, raise, out, gone)
  for _, id in ipairs(ids) do
    local pending = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)
    local entry = redis.call('XRANGE', KEYS[1], id, id)
    if #entry == 0 then
      gone[#gone + 1] = id
    elseif #pending > 0 then
      local count = pending[1][4]
      if pending[1][3] >= raise then
        count = count + 1
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'RETRYCOUNT', count, 'JUSTID')
      end
      out[#out + 1] = {id, count, entry[1][2]}
    end
  end
end
"""

# Our own pending entries after an id. KEYS: stream.
# ARGV: group, consumer, after, how many, the idle milliseconds from which on it counts as another try
# Returns the last id that was looked at (false: that was all), the entries, and the ids that were trimmed.
OWN_PENDING: Final = (
    _CONTENTS
    + """
local ids, out, gone = {}, {}, {}
for _, pending in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '(' .. ARGV[3], '+', ARGV[4], ARGV[2])) do
  ids[#ids + 1] = pending[1]
end
contents(ids, tonumber(ARGV[5]), out, gone)
return {ids[#ids] or false, out, gone}
"""
)

# Take over what others have not touched for long. KEYS: stream.
# ARGV: group, consumer, milliseconds, cursor, how many
# Returns the next cursor, the entries, and the ids that were trimmed.
TAKE_OVER: Final = (
    _CONTENTS
    + """
local out, gone, cursor, wanted = {}, {}, ARGV[4], tonumber(ARGV[5])
local steps = math.ceil(100 / wanted)  -- Redis looks at ten times as many as are wanted
repeat
  local found = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], cursor,
                           'COUNT', wanted - #out, 'JUSTID')
  cursor, steps = found[1], steps - 1
  for _, id in ipairs(found[3] or {}) do gone[#gone + 1] = id end
  contents(found[2], 0, out, gone)
until cursor == '0-0' or #out >= wanted or steps == 0
return {cursor, out, gone}
"""
)

# Put what has waited long enough back on the stream. KEYS: stream, waiting entries. ARGV: how many
# Returns how many were put back, the milliseconds until the next is due (-1: none waits), and how many are
# not ours: they are kept, and never due.
PUT_BACK: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[1])
local strange = 0
for _, member in ipairs(due) do
  local readable, message = pcall(cmsgpack.unpack, member)
  local pairs = readable and type(message) == 'table' and message[2]
  if type(pairs) == 'table' and #pairs > 0 and #pairs % 2 == 0 then
    redis.call('XADD', KEYS[1], '*', unpack(pairs))
    redis.call('ZREM', KEYS[2], member)
  else
    redis.call('ZADD', KEYS[2], 'XX', '+inf', member)
    strange = strange + 1
  end
end
local next = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {#due, next[2] and math.max(0, next[2] - now) or -1, strange}
"""

# The newest id of a stream. KEYS: stream
NEWEST: Final = """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
return last[1] and last[1][1] or '0-0'
"""

# What XINFO says, by name.
_FIELDS: Final = """
local function fields(list)
  local found = {}
  for i = 1, #list, 2 do found[list[i]] = list[i + 1] end
  return found
end
"""

# How much there is for a group. KEYS: stream, waiting entries.
# ARGV: group, our name, what a lease's name begins with, the milliseconds that a living one's lease has left
# Returns: unread (-1: some, but Redis cannot tell how many), pending, waiting, pending of consumers that are
# not alive, how many were ever trimmed before the group read them (0 also where Redis cannot tell), and our
# own pending ones.
DEPTH: Final = (
    _FIELDS
    + """
local function larger(one, other)  -- numbers of up to twenty digits: too long for Lua's own
  if #one ~= #other then return #one > #other end
  return one > other
end
local function later(one, other)
  local a, b = string.match(one, '^(%d+)-(%d+)$')
  local c, d = string.match(other, '^(%d+)-(%d+)$')
  return larger(a, c) or (a == c and larger(b, d))
end
local group
for _, one in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local found = fields(one)
  if found['name'] == ARGV[1] then group = found end
end
if not group then return redis.error_reply('NOGROUP there is no such group') end
local stream = fields(redis.call('XINFO', 'STREAM', KEYS[1]))
local read, length = group['last-delivered-id'], stream['length']
local unread, known = 0, true
if length > 0 and later(stream['last-entry'][1], read) then
  if later(stream['first-entry'][1], read) then
    unread = length
  else
    unread, known = group['lag'] or -1, false
  end
end
local trimmed, added, seen = 0, stream['entries-added'], group['entries-read']
if known and added and seen and stream['max-deleted-entry-id'] == '0-0' then
  trimmed = math.max(0, added - unread - seen)
end
local orphaned, own = 0, 0
for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local found = fields(one)
  if found['name'] == ARGV[2] then
    own = found['pending']
  elseif found['pending'] > 0 then
    local alive = redis.call('PTTL', ARGV[3] .. found['name']) >= tonumber(ARGV[4])
    if not alive then orphaned = orphaned + found['pending'] end
  end
end
local waiting = redis.call('ZCOUNT', KEYS[2], '-inf', '(+inf')
return {unread, group['pending'], waiting, orphaned, trimmed, own}
"""
)

# Let go of a consumer's name. KEYS: stream, lease. ARGV: group, consumer, token
LEAVE: Final = """
if redis.call('GET', KEYS[2]) == ARGV[3] then redis.call('DEL', KEYS[2]) end
local own = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if #own == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end
return #own
"""

# Take an entry out of one stream and put a message on another, or at the end of the same. KEYS: from, to.
# ARGV: group (empty: none), id, field, value …  Returns 0 when it was gone already.
MOVE: Final = """
if #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3))
if ARGV[1] ~= '' then redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) end
redis.call('XDEL', KEYS[1], ARGV[2])
return 1
"""

# --- without a group ------------------------------------------------------------------------------------

# From where to where a stream goes. KEYS: stream. Returns nothing if there is none; otherwise the last id it
# gave, the oldest entry (empty: none), how many there are, how many were ever added (-1: unknown), and the
# newest that was deleted by its id.
SPAN: Final = (
    _FIELDS
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local found = fields(redis.call('XINFO', 'STREAM', KEYS[1]))
local first = found['first-entry']
return {found['last-generated-id'], first and first[1] or '', found['length'],
        found['entries-added'] or -1, found['max-deleted-entry-id'] or ''}
"""
)

# Create a stream, if it is missing. KEYS: stream
MAKE_STREAM: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('XGROUP', 'CREATE', KEYS[1], 'chronicle', '$', 'MKSTREAM')
redis.call('XGROUP', 'DESTROY', KEYS[1], 'chronicle')
return 1
"""

# Keep a position, and never an older one than there is. KEYS: cursor.
# ARGV: id, whether it may be older (0, 1)
SAVE_CURSOR: Final = """
local function parts(id)
  local first, second = string.match(id, '^(%d+)-(%d+)$')
  if not first then return nil end
  return {#first, first, #second, second}
end
local kept = redis.call('GET', KEYS[1])
if kept and ARGV[2] == '0' then
  local old, new = parts(kept), parts(ARGV[1])
  if not old then return redis.error_reply('ERR the cursor is no id') end
  for i = 1, 4 do
    if old[i] > new[i] then return 0 end
    if old[i] < new[i] then break end
  end
end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""

# Add a dead letter, if it is not among the newest ones: after a lost answer nobody knows.
# KEYS: dead letters. ARGV: how many to look through, field, value …
ADD_ONCE: Final = (
    _IS_AMONG
    + """
if not is_among(KEYS[1], tonumber(ARGV[1]), 2) then redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2)) end
return 1
"""
)
