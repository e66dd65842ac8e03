// delay_link: holds back the frames of one host's cable, for kernels without tc's netem.
//
// usage: delay_link MICROSECONDS PORT TAP
//
// PORT is the switch's end of the host's cable. TAP is made here, and joins the bridge in the place of PORT; frames
// are copied both ways between the two, late by as many microseconds. Ends when its standard input closes.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Frames carry this header on both sides, so that large segments and checksums not yet made pass as they are.
#define HEADER_BYTES ((int)sizeof(struct virtio_net_hdr))
#define FRAME_BYTES (HEADER_BYTES + 65536 + 64)
#define QUEUE_FRAMES 8192
#define SOCKET_BYTES (16 << 20)

struct frame {
    struct frame *next;
    uint64_t due_nanoseconds;
    size_t bytes;
    char data[];
};

struct direction {
    int from, to;
    uint64_t delay_microseconds;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct frame *first, *last;
    int waiting;
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void wait_until(uint64_t nanoseconds) {
    struct timespec when = {(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) {
    }
}

static int open_port(const char *name) {
    int on = 1, bytes = SOCKET_BYTES, file = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (file < 0) fail("packet socket");
    if (setsockopt(file, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on)) fail("PACKET_VNET_HDR");
    // Else every frame sent here would come back as one received here.
    if (setsockopt(file, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on)) fail("PACKET_IGNORE_OUTGOING");
    if (setsockopt(file, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes)) fail("SO_RCVBUFFORCE");
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    address.sll_ifindex = (int)if_nametoindex(name);
    if (!address.sll_ifindex || bind(file, (struct sockaddr *)&address, sizeof address)) fail(name);
    return file;
}

static int open_tap(const char *name) {
    int header = HEADER_BYTES, file = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (file < 0) fail("/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (ioctl(file, TUNSETIFF, &request)) fail(name);
    if (ioctl(file, TUNSETVNETHDRSZ, &header)) fail("TUNSETVNETHDRSZ");
    if (ioctl(file, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) fail("TUNSETOFFLOAD");
    return file;
}

static void enqueue(struct direction *way, const char *data, size_t bytes) {
    struct frame *frame = malloc(sizeof *frame + bytes);
    if (!frame) fail("malloc");
    frame->next = NULL;
    frame->due_nanoseconds = now_nanoseconds() + way->delay_microseconds * 1000u;
    frame->bytes = bytes;
    memcpy(frame->data, data, bytes);
    pthread_mutex_lock(&way->lock);
    if (way->waiting < QUEUE_FRAMES) {
        if (way->last) way->last->next = frame;
        else way->first = frame;
        way->last = frame;
        way->waiting++;
        pthread_cond_signal(&way->filled);
    } else {
        free(frame);  // a full queue drops, as a switch does
    }
    pthread_mutex_unlock(&way->lock);
}

static void *receive(void *argument) {
    struct direction *way = argument;
    static _Thread_local char data[FRAME_BYTES];
    for (;;) {
        ssize_t bytes = read(way->from, data, sizeof data);
        if (bytes <= 0) {
            if (errno == ENODEV || errno == ENXIO) fail("link");
            wait_until(now_nanoseconds() + 1000000u);  // this end is down; it may come up again
            continue;
        }
        enqueue(way, data, (size_t)bytes);
    }
    return NULL;
}

static void *forward(void *argument) {
    struct direction *way = argument;
    prctl(PR_SET_TIMERSLACK, 1000);
    for (;;) {
        pthread_mutex_lock(&way->lock);
        while (!way->first) pthread_cond_wait(&way->filled, &way->lock);
        struct frame *frame = way->first;
        way->first = frame->next;
        if (!way->first) way->last = NULL;
        pthread_mutex_unlock(&way->lock);
        wait_until(frame->due_nanoseconds);
        if (write(way->to, frame->data, frame->bytes) < 0) {
            // The other end is down or full: the frame is lost, as on a real cable.
        }
        free(frame);
        pthread_mutex_lock(&way->lock);
        way->waiting--;
        pthread_mutex_unlock(&way->lock);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: delay_link MICROSECONDS PORT TAP\n");
        return 2;
    }
    int port = open_port(words[2]), tap = open_tap(words[3]);
    static struct direction ways[2];
    for (int index = 0; index < 2; index++) {
        struct direction *way = &ways[index];
        way->from = index ? tap : port;
        way->to = index ? port : tap;
        way->delay_microseconds = strtoull(words[1], NULL, 10);
        pthread_mutex_init(&way->lock, NULL);
        pthread_cond_init(&way->filled, NULL);
        pthread_t thread;
        if (pthread_create(&thread, NULL, receive, way) || pthread_create(&thread, NULL, forward, way)) fail("thread");
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}
