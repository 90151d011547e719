/* The limit: librabbitmq, one blocking loop, nothing parsed, every message acked on its own. */

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>

static void need(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "limit: %s failed\n", what);
    exit(1);
  }
}

static int answered(amqp_connection_state_t connection) {
  return amqp_get_rpc_reply(connection).reply_type == AMQP_RESPONSE_NORMAL;
}

int main(void) {
  struct amqp_connection_info at;
  char *url = getenv("BENCH_URL");
  char *queue = getenv("BENCH_QUEUE");
  char *concurrency = getenv("BENCH_CONCURRENCY");
  need(url && queue && concurrency, "reading BENCH_URL, BENCH_QUEUE and BENCH_CONCURRENCY");
  need(amqp_parse_url(url, &at) == AMQP_STATUS_OK, "reading the URL");

  amqp_connection_state_t connection = amqp_new_connection();
  amqp_socket_t *socket = amqp_tcp_socket_new(connection);
  need(socket && amqp_socket_open(socket, at.host, at.port) == AMQP_STATUS_OK, "connecting");
  amqp_rpc_reply_t login =
      amqp_login(connection, at.vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, at.user, at.password);
  need(login.reply_type == AMQP_RESPONSE_NORMAL, "logging in");
  amqp_channel_open(connection, 1);
  need(answered(connection), "opening a channel");
  amqp_basic_qos(connection, 1, 0, (uint16_t)(2 * atoi(concurrency)), 0);
  need(answered(connection), "setting the prefetch");
  amqp_basic_consume(connection, 1, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
  need(answered(connection), "consuming");

  for (;;) {
    amqp_envelope_t envelope;
    amqp_maybe_release_buffers(connection);
    amqp_rpc_reply_t got = amqp_consume_message(connection, &envelope, NULL, 0);
    need(got.reply_type == AMQP_RESPONSE_NORMAL, "receiving");
    need(amqp_basic_ack(connection, 1, envelope.delivery_tag, 0) == AMQP_STATUS_OK, "acking");
    amqp_destroy_envelope(&envelope);
  }
}
