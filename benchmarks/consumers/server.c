/* The system that the `http` handlers call: an HTTP/1.1 server with keep-alive that answers every POST with
   200, at once or after BENCH_ANSWER seconds. Any other request is answered with the number of POSTs so far,
   so that the benchmark can check that a consumer really called. It prints its port and serves until it is
   killed.

   One thread with epoll, in C, because it shares the machine with the broker and the consumer. Measured with
   raw sockets that ask without a pause it uses 10 µs of CPU for a request, so a core of it could serve about
   100 000 per second; woken for every single request it uses up to 30 µs, an order of magnitude less than
   any of the consumers. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 4096, BUFFER = 65536, EVENTS = 256, LATER = 65536 };

typedef struct {
  unsigned life; /* counts the connections that had this descriptor */
  size_t used;
  char *bytes;
} Connection;

typedef struct {
  long long due; /* nanoseconds */
  int fd;
  unsigned life;
} Answer;

static Connection connections[CONNECTIONS];
static Answer later[LATER]; /* a ring; all wait equally long, so the first is always the next */
static unsigned first, last;
static long long delay, posts;
static int polling, timer;

static void need(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "server: %s failed: %s\n", what, strerror(errno));
    exit(1);
  }
}

static long long now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void answer(int fd, long long number) {
  char body[32], text[160];
  int size = number < 0 ? sprintf(body, "{\"ok\":true}") : sprintf(body, "%lld", number);
  int length = sprintf(text,
                       "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                       size, body);
  /* A few bytes for a client that reads every answer: they always fit. */
  need(send(fd, text, (size_t)length, MSG_NOSIGNAL) == length || errno == EPIPE || errno == ECONNRESET,
       "answering");
}

static void arm(void) {
  struct itimerspec at = {{0, 0}, {later[first % LATER].due / 1000000000LL, later[first % LATER].due % 1000000000LL}};
  need(timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) == 0, "setting the timer");
}

static void answer_those_due(void) {
  unsigned long long times;
  need(read(timer, &times, sizeof times) > 0 || errno == EAGAIN, "reading the timer");
  for (; first != last && later[first % LATER].due <= now(); first++) {
    Answer *next = &later[first % LATER];
    if (connections[next->fd].life == next->life) answer(next->fd, -1);
  }
  if (first != last) arm();
}

static void asked(int fd, int is_post) {
  if (!is_post) {
    answer(fd, posts);
    return;
  }
  posts++;
  if (!delay) {
    answer(fd, -1);
    return;
  }
  need(last - first < LATER, "keeping so many answers");
  later[last++ % LATER] = (Answer){now() + delay, fd, connections[fd].life};
  if (last - first == 1) arm();
}

/* The size of the first request in the buffer; 0 if it is not complete. */
static size_t request(const char *bytes, size_t used) {
  const char *end = memmem(bytes, used, "\r\n\r\n", 4);
  if (!end) return 0;
  size_t size = (size_t)(end - bytes) + 4;
  for (const char *line = bytes; line < end; line = (const char *)memchr(line, '\n', size) + 1) {
    if (strncasecmp(line, "content-length:", 15) == 0) size += strtoul(line + 15, NULL, 10);
  }
  return size <= used ? size : 0;
}

static void hang_up(int fd) {
  connections[fd].life++;
  close(fd);
}

static void serve(int fd) {
  Connection *from = &connections[fd];
  ssize_t got = recv(fd, from->bytes + from->used, BUFFER - from->used, 0);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) {
    hang_up(fd);
    return;
  }
  from->used += (size_t)got;
  size_t size;
  while ((size = request(from->bytes, from->used))) {
    asked(fd, strncmp(from->bytes, "POST ", 5) == 0);
    from->used -= size;
    memmove(from->bytes, from->bytes + size, from->used);
  }
  need(from->used < BUFFER, "holding a request");
}

static void welcome(int listening) {
  int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK), yes = 1;
  if (fd < 0) return;
  need(fd < CONNECTIONS, "taking so many connections");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (!connections[fd].bytes) need((connections[fd].bytes = malloc(BUFFER)) != NULL, "allocating");
  connections[fd].used = 0;
  struct epoll_event event = {EPOLLIN, {.fd = fd}};
  need(epoll_ctl(polling, EPOLL_CTL_ADD, fd, &event) == 0, "watching a connection");
}

int main(void) {
  char *seconds = getenv("BENCH_ANSWER");
  delay = seconds ? (long long)(atof(seconds) * 1e9) : 0;
  int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  need(bind(listening, (struct sockaddr *)&at, size) == 0 && listen(listening, 1024) == 0, "listening");
  need(getsockname(listening, (struct sockaddr *)&at, &size) == 0, "asking for the port");
  polling = epoll_create1(0);
  timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  need(polling >= 0 && timer >= 0, "making a poller");
  struct epoll_event incoming = {EPOLLIN, {.fd = listening}}, due = {EPOLLIN, {.fd = timer}};
  need(epoll_ctl(polling, EPOLL_CTL_ADD, listening, &incoming) == 0, "watching the port");
  need(epoll_ctl(polling, EPOLL_CTL_ADD, timer, &due) == 0, "watching the timer");
  printf("%d\n", ntohs(at.sin_port));
  fflush(stdout);
  for (;;) {
    struct epoll_event ready[EVENTS];
    int count = epoll_wait(polling, ready, EVENTS, -1);
    need(count >= 0 || errno == EINTR, "waiting");
    for (int i = 0; i < count; i++) {
      int fd = ready[i].data.fd;
      if (fd == listening) welcome(fd);
      else if (fd == timer) answer_those_due();
      else serve(fd);
    }
  }
}
